-- Returns what agents are told to do. No row: there is no such agent. $1 workspaces, $2 names
select g.workspace, g.name, g.ordered as "order", g.order_reason as reason
from unnest($1::text[], $2::text[]) as s (workspace, name)
join grns.agents g on g.workspace = s.workspace and g.name = s.name
