-- Returns what a life of an agent is told to do; no row: to work. $1 workspace, $2 name, $3 agent_id of the life
select grns.life_order(g, $3) as "order", g.ordered_by, g.order_reason as reason
from grns.agents g
where g.workspace = $1 and g.name = $2 and grns.life_order(g, $3) is not null
