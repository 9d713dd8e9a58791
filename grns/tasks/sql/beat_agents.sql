-- Notes heartbeats of agents whose latest lives go on, each agent once, and returns the order of each. It returns no row for an agent that
-- does not exist, that another transaction has locked, or whose life begins or is not the latest: `begin_lives` notes those.
-- $1 workspaces, $2 names, $3 lives (null: as before), $4 statuses: idle, working, blocked or stopped, $5 ids of their tasks,
-- $6 percents and $7 steps of their progress, $8 memories in MiB, $9 CPUs in percent
with said as (
    select s.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::double precision[], $7::text[],
        $8::double precision[], $9::double precision[])
        with ordinality as s (workspace, name, life, status, task_id, percent, step, memory_mb, cpu_percent, place)
),
-- The statement waits for no lock, so it may take them in any order.
locked as (
    select g.ctid as at, s.place, s.status, s.task_id, s.percent, s.step, s.memory_mb, s.cpu_percent
    from said s
    join grns.agents g on g.workspace = s.workspace and g.name = s.name
    where grns.goes_on(g, coalesce(s.life, g.agent_id, g.name), now())
    for no key update of g skip locked
)
update grns.agents g
set last_seen_at = now(), stopped_at = case when l.status = 'stopped' then now() end,
    is_blocked = l.status = 'blocked', running = case when l.status = 'working' then greatest(g.running, 1) else 0 end,
    current_task_id = l.task_id, progress_percent = l.percent, current_step = l.step, memory_mb = l.memory_mb,
    cpu_percent = l.cpu_percent
from locked l
where g.ctid = l.at
returning l.place, g.ordered as "order", g.order_reason as reason
