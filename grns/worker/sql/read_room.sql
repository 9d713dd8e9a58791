-- Returns how many tasks more an agent may have; none for a life that is told to end. No row: it is not registered.
-- $1 workspace, $2 name, $3 agent_id
select case when grns.life_order(g, $3) is null then g.max_concurrent_tasks - grns.agent_running(g) else 0 end as room
from grns.agents g
where g.workspace = $1 and g.name = $2
