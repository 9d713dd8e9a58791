-- Lists the tasks that an agent runs, the oldest first, and those in the queue that only it may run, the most urgent first.
-- $1 workspace, $2 name, $3 how many at most, $4 only of this status: running or queued (null: both)
(select t.id, t.task_type, t.status, t.attempt, t.started_at, t.lease_until,
    case when p.attempt = t.attempt then p.percent end as progress_percent,
    case when p.attempt = t.attempt then p.step end as current_step
from grns.workers w
join grns.tasks t on t.owner_agent_id = w.agent_id
left join grns.progress p on p.task_id = t.id
where w.workspace = $1 and w.agent = $2 and t.lease_until is not null and t.workspace = $1 and coalesce($4, t.status) = t.status
order by t.started_at, t.id
limit $3)
union all
(select t.id, t.task_type, t.status, t.attempt, null, null, null, null
from grns.agents g
join grns.tasks t on t.workspace = g.workspace and t.agent_type = g.agent_type and t.queued_at is not null and t.route <> ''
    and t.route = grns.route_to(g.name, null)
where g.workspace = $1 and g.name = $2 and coalesce($4, t.status) = t.status
order by t.priority, t.queued_at
limit $3)
limit $3
