-- Says whether there is an agent. $1 workspace, $2 name
select g.name from grns.agents g where g.workspace = $1 and g.name = $2
