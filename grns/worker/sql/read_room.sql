-- Returns how many tasks more an agent may have. No row: it is not registered. $1 workspace, $2 name
select g.max_concurrent_tasks - (
        select count(*)
        from grns.workers w
        join grns.tasks t on t.owner_agent_id = w.agent_id
        where w.workspace = g.workspace and w.agent = g.name and t.lease_until is not null
    ) as room
from grns.agents g
where g.workspace = $1 and g.name = $2
