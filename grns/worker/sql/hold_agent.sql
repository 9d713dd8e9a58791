-- Locks an agent, so that its claims follow one another. No row: it is not registered. $1 workspace, $2 name
select g.name from grns.agents g where g.workspace = $1 and g.name = $2 for no key update
