-- Notes heartbeats of agents, the last one of each, and answers what each agent is told to do. No row: there is no such agent.
-- $1 workspaces, $2 names, $3 lives (null: as before), $4 statuses: idle, working, blocked or stopped, $5 ids of their tasks,
-- $6 percents and $7 steps of their progress, $8 memories in MiB, $9 CPUs in percent
with said as (
    select s.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::double precision[], $7::text[],
        $8::double precision[], $9::double precision[])
        with ordinality as s (workspace, name, life, status, task_id, percent, step, memory_mb, cpu_percent, place)
),
latest as (
    select distinct on (s.workspace, s.name) s.* from said s order by s.workspace, s.name, s.place desc
),
locked as (
    select l.*, coalesce(l.life, g.agent_id, g.name) as lives_as,
        l.status = 'stopped' and l.life is not null and g.agent_id is not null and l.life <> g.agent_id as is_late
    from latest l
    join grns.agents g on g.workspace = l.workspace and g.name = l.name
    order by g.workspace, g.name
    for no key update of g
)
update grns.agents g
set started_at = case when l.is_late then g.started_at when grns.begins_life(g, l.lives_as, now()) then clock_timestamp() else g.started_at end,
    -- The end of a life that is not the latest says nothing of that one.
    agent_id = case when l.is_late then g.agent_id else l.lives_as end,
    last_seen_at = case when l.is_late then g.last_seen_at else now() end,
    stopped_at = case when l.is_late then g.stopped_at when l.status = 'stopped' then now() end,
    is_blocked = l.status = 'blocked', running = case when l.status = 'working' then greatest(g.running, 1) else 0 end,
    current_task_id = l.task_id, progress_percent = l.percent, current_step = l.step, memory_mb = l.memory_mb,
    cpu_percent = l.cpu_percent
from locked l
where g.workspace = l.workspace and g.name = l.name  -- not by its place: its row may have moved while it was waited for
returning g.workspace, g.name, grns.agent_order(g) as "order", g.order_reason as reason
