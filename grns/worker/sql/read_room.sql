-- Returns how many tasks more an agent may have; none for a life that is told to end. No row: it is not registered.
-- $1 workspace, $2 name, $3 agent_id
select grns.agent_room(g, $3) as room from grns.agents g where g.workspace = $1 and g.name = $2
