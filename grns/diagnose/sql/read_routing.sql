-- Lists the agents that a task may be for, those that can do most of what it takes first.
-- $1 workspace, $2 agent_type, $3 name of its agent (null: it takes capabilities), $4 capabilities, $5 how many at most
select g.name, g.agent_type, grns.agent_health(g, now()) as health, g.ordered as "order",
    g.max_concurrent_tasks - grns.agent_running(g) as room, m.missing
from grns.agents g
cross join lateral (
    select array(select c.name from unnest($4::text[]) as c (name) where c.name <> all(g.capabilities)) as missing
) as m
where g.workspace = $1 and case when $3::text is null then g.agent_type = $2 else g.name = $3::text end
order by cardinality(m.missing), g.name
limit $5
