-- Reads the messages of an agent that it has not acknowledged, in their order; `deliver_mail` notes which of them are handed out. $1 workspace,
-- $2 agent, $3 how many at most, $4 the number behind which to begin
select m.seq, m.id, m.to_agent, m.to_task, m.from_agent, m.from_task, m.from_attempt, m.type, m.correlation_id, m.in_reply_to,
    m.payload::text as payload, m.created_at, m.expires_at, m.delivered_at, m.deliveries, m.acked_at
from grns.mail m
where m.workspace = $1 and m.to_agent = $2 and m.acked_at is null and m.expires_at > now() and m.seq > $4
order by m.seq
limit $3
