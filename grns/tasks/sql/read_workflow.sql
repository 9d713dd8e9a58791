-- Reads a workflow. $1 its id, $2 workspace
select k.id, k.workspace, k.name, k.status, w.required as total, w.open - o.open as open, w.met as succeeded, w.broken as failed,
    w.required - w.open + o.open - w.met - w.broken as skipped, k.trace_id, k.created_at, k.created_by, k.sealed_at, k.ended_at,
    k.paused_at, k.paused_by, k.pause_reason, k.cancel_requested_at, k.escalation_task_id, k.version,
    case when w.broken = 0 then '{}' else array(
        select coalesce(e.name, e.needs) from grns.needs e
        where e.task_id = k.id and grns.is_broken(e.outcome, e.ended_as)
        order by e.needs
        limit 20
    ) end as failures
from grns.workflows k
join grns.waits w on w.task_id = k.id
cross join lateral (  -- until it is sealed, it needs itself
    select count(*) as open from grns.needs e where e.task_id = k.id and e.needs = k.id and e.ended_as is null
) as o
where k.id = $1 and k.workspace = $2
