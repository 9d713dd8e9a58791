-- Returns what agents are told to do. No row: there is no such agent. $1 workspaces, $2 names
select s.place, g.ordered as "order", g.order_reason as reason
from unnest($1::text[], $2::text[]) with ordinality as s (workspace, name, place)
join grns.agents g on g.workspace = s.workspace and g.name = s.name
