-- Returns what an agent is told to do, if this is its life; no row: to work. $1 workspace, $2 name, $3 agent_id of the life
select grns.agent_order(g) as "order", g.ordered_by, g.order_reason as reason
from grns.agents g
where g.workspace = $1 and g.name = $2 and g.agent_id = $3 and grns.agent_order(g) is not null
