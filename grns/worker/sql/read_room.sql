-- Returns how many tasks more an agent may have; none for a life that is told to end. No row: it is not registered.
-- $1 workspace, $2 name, $3 agent_id
select case when grns.life_order(g, $3) is null then g.max_concurrent_tasks - (
        select count(*)
        from grns.workers w
        join grns.tasks t on t.owner_agent_id = w.agent_id
        where w.workspace = g.workspace and w.agent = g.name and t.lease_until is not null
    ) else 0 end as room
from grns.agents g
where g.workspace = $1 and g.name = $2
