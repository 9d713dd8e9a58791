-- Hands out the messages of an agent that it has not acknowledged, in their order. $1 workspace, $2 agent, $3 how many at most,
-- $4 the number behind which to begin
with due as (
    select m.seq from grns.mail m
    where m.workspace = $1 and m.to_agent = $2 and m.acked_at is null and m.expires_at > now() and m.seq > $4
    order by m.seq
    limit $3
    for no key update
),
handed as (
    update grns.mail m
    set delivered_at = coalesce(m.delivered_at, clock_timestamp()), deliveries = m.deliveries + 1
    from due d
    where m.seq = d.seq
    returning m.*
)
select h.seq, h.id, h.to_agent, h.to_task, h.from_agent, h.from_task, h.from_attempt, h.type, h.correlation_id, h.in_reply_to,
    h.payload::text as payload, h.created_at, h.expires_at, h.delivered_at, h.deliveries, h.acked_at
from handed h
order by h.seq
