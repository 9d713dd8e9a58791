-- Lists the messages that have words, in their order. $1 workspace, $2 conversation (null: any), $3 agent (null: any), $4 number to go
-- on after, $5 how many at most, $6 whether only those that are not acknowledged, $7 a word, $8 all words, $9 how one more begins
select m.seq, m.id, m.to_agent, m.to_task, m.from_agent, m.from_task, m.from_attempt, m.type, m.correlation_id, m.in_reply_to,
    m.payload::text as payload, m.created_at, m.expires_at, m.delivered_at, m.deliveries, m.acked_at
from grns.words w
cross join lateral (
    select m.* from grns.mail m where m.seq = substr(w.owner, 6)::bigint offset 0
) as m
where w.workspace = $1 and w.word = $7 and w.owner > grns.mail_owner($4) and w.owner < 'mail.'
    and ($2::text is null or m.correlation_id = $2) and ($3::text is null or m.to_agent = $3)
    and (not $6::boolean or m.acked_at is null)
    and exists (
        select from grns.texts x
        where x.owner = w.owner and x.workspace = $1 and x.words @> $8::text[]
            and ($9 = '' or ' ' || array_to_string(x.words, ' ') like '% ' || $9 || '%')
    )
order by w.owner
limit $5
