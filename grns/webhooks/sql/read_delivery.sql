-- Reads one delivery. $1 workspace, $2 webhook, $3 its number
select d.seq, d.webhook_id, d.message_id, d.kind, d.task_id, d.created_at, d.state, d.attempts,
    case when d.claim_id is null then d.due_at end as due_at, d.attempted_at, d.duration_ms, d.status_code, d.error,
    d.ended_at
from grns.webhook_deliveries d
join grns.webhooks w on w.id = d.webhook_id and w.deleted_at is null
where d.webhook_id = $2 and d.seq = $3 and d.workspace = $1
