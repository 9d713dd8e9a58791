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
    select g.ctid as at, l.*, coalesce(l.life, g.agent_id, g.name) as lives_as
    from latest l
    join grns.agents g on g.workspace = l.workspace and g.name = l.name
    order by g.workspace, g.name
    for no key update of g
)
update grns.agents g
set started_at = case when grns.begins_life(g, l.lives_as, now()) then clock_timestamp() else g.started_at end,
    agent_id = l.lives_as, last_seen_at = now(), stopped_at = case when l.status = 'stopped' then now() end,
    is_blocked = l.status = 'blocked', running = case when l.status = 'working' then greatest(g.running, 1) else 0 end,
    current_task_id = l.task_id, progress_percent = l.percent, current_step = l.step, memory_mb = l.memory_mb,
    cpu_percent = l.cpu_percent
from locked l
where g.ctid = l.at
returning g.workspace, g.name, grns.agent_order(g) as "order", g.order_reason as reason
