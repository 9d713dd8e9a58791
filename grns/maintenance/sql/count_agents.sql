-- Counts the agents of each pool by their health.
select g.workspace, g.agent_type, grns.agent_health(g, now()) as health, count(*) as agents
from grns.agents g
group by g.workspace, g.agent_type, health
