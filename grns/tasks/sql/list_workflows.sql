-- Lists workflows, the latest first. $1 workspace, $2 status, or null for all, $3 before this id, or null, $4 rows at most
select k.id, k.workspace, k.name, k.status, w.required as total, w.open - o.open as open, w.met as succeeded, w.broken as failed,
    w.required - w.open + o.open - w.met - w.broken as skipped, k.trace_id, k.created_at, k.created_by, k.sealed_at, k.ended_at,
    k.paused_at, k.paused_by, k.pause_reason, k.cancel_requested_at, k.escalation_task_id, k.version, '{}'::text[] as failures
from grns.workflows k
join grns.waits w on w.task_id = k.id
cross join lateral (  -- until it is sealed, it needs itself
    select count(*) as open from grns.needs e where e.task_id = k.id and e.needs = k.id and e.ended_as is null
) as o
where k.workspace = $1 and ($2::text is null or k.status = $2) and ($3::text is null or k.id < $3)
order by k.id desc
limit $4
