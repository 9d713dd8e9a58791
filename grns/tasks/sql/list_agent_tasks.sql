-- Lists the tasks that an agent runs, the oldest first. $1 workspace, $2 name, $3 how many at most
select t.id, t.task_type, t.status, t.attempt, t.started_at, t.lease_until,
    case when p.attempt = t.attempt then p.percent end as progress_percent,
    case when p.attempt = t.attempt then p.step end as current_step
from grns.workers w
join grns.tasks t on t.owner_agent_id = w.agent_id
left join grns.progress p on p.task_id = t.id
where w.workspace = $1 and w.agent = $2 and t.lease_until is not null and t.workspace = $1
order by t.started_at, t.id
limit $3
