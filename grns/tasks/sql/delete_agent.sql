-- Forgets an agent that is not there. $1 workspace, $2 name
with gone as (
    delete from grns.agents g
    where g.workspace = $1 and g.name = $2 and grns.agent_health(g, now()) in ('absent', 'stopped', 'dead')
    returning g.workspace, g.name, g.agent_type
),
lives as (
    delete from grns.earlier_lives e using gone g where e.workspace = g.workspace and e.name = g.name
)
select g.agent_type from gone g
