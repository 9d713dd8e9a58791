-- Lists the messages that have words, in their order, among the next of one word; the first row says how many these are and which is the
-- last, and is alone if none has all that is asked for. $1 workspace, $2 conversation (null: any), $3 agent (null: any), $4 number to
-- go on after, $5 how many at most, $6 whether only those that are not acknowledged, $7 a word, $8 all words, $9 how one more begins,
-- $10 how many to look at
with looked as materialized (
    select w.owner
    from grns.words w
    where w.workspace = $1 and w.word = $7 and w.owner > grns.mail_owner($4) and w.owner < 'mail.'
    order by w.owner
    limit $10
),
found as (
    select m.*
    from looked l
    cross join lateral (  -- the offsets have each looked up
        select o.* from grns.mail o where o.seq = substr(l.owner, 6)::bigint offset 0
    ) as m
    cross join lateral (
        select x.words from grns.texts x where x.owner = l.owner and x.workspace = $1 offset 0
    ) as x
    where ($2::text is null or m.correlation_id = $2) and ($3::text is null or m.to_agent = $3)
        and (not $6::boolean or m.acked_at is null) and x.words @> $8::text[]
        and ($9 = '' or ' ' || array_to_string(x.words, ' ') like '% ' || $9 || '%')
    order by m.seq
    limit $5
)
select k.looked_at, k.last_seq, m.seq, m.id, m.to_agent, m.to_task, m.from_agent, m.from_task, m.from_attempt, m.type,
    m.correlation_id, m.in_reply_to, m.payload::text as payload, m.created_at, m.expires_at, m.delivered_at, m.deliveries, m.acked_at
from (select count(*) as looked_at, max(substr(l.owner, 6)::bigint) as last_seq from looked l) as k
left join found m on true
order by m.seq
