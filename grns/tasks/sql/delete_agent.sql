-- Forgets an agent that is not there. $1 workspace, $2 name
delete from grns.agents g
where g.workspace = $1 and g.name = $2 and grns.agent_health(g, now()) in ('absent', 'stopped', 'dead')
returning g.agent_type
