-- Lists messages in their order: those of a conversation, or to an agent. $1 workspace, $2 correlation_id, $3 agent (null: any),
-- $4 number to go on behind, $5 how many at most, $6 whether only those that are not acknowledged
with found as (
    (select m.* from grns.mail m
    where $2::text is not null and m.workspace = $1 and m.correlation_id = $2 and m.seq > $4
        and ($3::text is null or m.to_agent = $3) and (not $6::boolean or m.acked_at is null)
    order by m.seq
    limit $5)
    union all
    (select m.* from grns.mail m
    where $2::text is null and m.workspace = $1 and m.to_agent = $3 and m.seq > $4 and m.acked_at is null
    order by m.seq
    limit $5)
    union all
    (select m.* from grns.mail m
    where $2::text is null and not $6::boolean and m.workspace = $1 and m.to_agent = $3 and m.seq > $4 and m.acked_at is not null
    order by m.seq
    limit $5)
    union all
    (select m.* from grns.mail m
    where $2::text is null and $3::text is null and m.workspace = $1 and m.seq > $4 and (not $6::boolean or m.acked_at is null)
    order by m.seq
    limit $5)
)
select m.seq, m.id, m.to_agent, m.to_task, m.from_agent, m.from_task, m.from_attempt, m.type, m.correlation_id, m.in_reply_to,
    m.payload::text as payload, m.created_at, m.expires_at, m.delivered_at, m.deliveries, m.acked_at
from found m
order by m.seq
limit $5
