-- Says how long the oldest task of each lane has been queued, for the agent types that have or had workers;
-- zero for a lane that is empty.
select a.workspace, a.agent_type, p.priority,
    coalesce(extract(epoch from now() - o.queued_at), 0)::double precision as oldest_seconds
from (select distinct workspace, agent_type from grns.agents) as a
cross join generate_series(0, 3) as p (priority)
left join lateral (
    select t.queued_at from grns.tasks t
    where t.workspace = a.workspace and t.agent_type = a.agent_type and t.priority = p.priority
        and t.queued_at is not null
    order by t.queued_at
    limit 1
) as o on true
