-- Reads a workflow. $1 its id, $2 workspace
select k.id, k.workspace, k.name, k.status, k.total, w.open, w.met as succeeded, w.broken as failed,
    k.total - w.open - w.met - w.broken as skipped, k.trace_id, k.created_at, k.created_by, k.ended_at,
    k.paused_at, k.paused_by, k.pause_reason, k.cancel_requested_at, k.escalation_task_id, k.version
from grns.workflows k
join grns.waits w on w.task_id = k.id
where k.id = $1 and k.workspace = $2
