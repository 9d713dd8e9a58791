-- Writes what a webhook was told of, as its sender leaves it: of the latest events of a kind so many.
-- $1 webhook, $2 workspace, $3 kind, $4 how many
insert into grns.webhook_deliveries (webhook_id, seq, workspace, message_id, kind, task_id, created_at, state, attempts,
    due_at, attempted_at, duration_ms, status_code, ended_at)
select $1, e.seq, e.workspace, e.message_id, e.kind, e.task_id, e.created_at,
    case when e.seq % 50 = 0 then 'failed' else 'delivered' end, case when e.seq % 50 = 0 then 8 else 1 end,
    null, e.created_at + interval '1 s', 40, case when e.seq % 50 = 0 then 500 else 204 end,
    e.created_at + interval '1.04 s'
from grns.events e
where e.workspace = $2 and e.kind = $3
order by e.seq desc
limit $4
