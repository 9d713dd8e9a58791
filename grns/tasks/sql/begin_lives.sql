-- Notes heartbeats that `beat_agents` left out, each agent once, and returns the order of each. The life of an agent begins here. A heartbeat
-- of a life before the latest changes nothing. It returns no row for an agent that does not exist, or that another transaction has locked.
-- $1 workspaces, $2 names, $3 lives (null: as before), $4 statuses: idle, working, blocked or stopped, $5 ids of their tasks,
-- $6 percents and $7 steps of their progress, $8 memories in MiB, $9 CPUs in percent
with said as (
    select s.*
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::double precision[], $7::text[],
        $8::double precision[], $9::double precision[])
        with ordinality as s (workspace, name, life, status, task_id, percent, step, memory_mb, cpu_percent, place)
),
locked as (
    select s.*, v.life as lives_as, v.goes_on,
        -- The end of a life that is not the latest begins none.
        not v.goes_on and (s.status <> 'stopped' or coalesce(g.agent_id, v.life) = v.life) and grns.begins_life(g, v.life, now()) as begins,
        case when not v.goes_on then grns.life_order(g, v.life) end as own_order, g.order_reason as reason
    from said s
    join grns.agents g on g.workspace = s.workspace and g.name = s.name
    cross join lateral (
        select coalesce(s.life, g.agent_id, g.name) as life,
            grns.goes_on(g, coalesce(s.life, g.agent_id, g.name), now()) as goes_on
    ) as v
    for no key update of g skip locked
),
beat as (
    update grns.agents g
    set started_at = case when l.begins then clock_timestamp() else g.started_at end,
        ordered = case when l.begins then grns.replace_life(g, l.lives_as) else g.ordered end,
        agent_id = l.lives_as, last_seen_at = now(), stopped_at = case when l.status = 'stopped' then now() end,
        is_blocked = l.status = 'blocked', running = case when l.status = 'working' then greatest(g.running, 1) else 0 end,
        current_task_id = l.task_id, progress_percent = l.percent, current_step = l.step, memory_mb = l.memory_mb,
        cpu_percent = l.cpu_percent
    from locked l
    where g.workspace = l.workspace and g.name = l.name and (l.goes_on or l.begins)
    returning l.place, g.ordered, g.order_reason
)
select b.place, b.ordered as "order", b.order_reason as reason from beat b
union all
select l.place, l.own_order, l.reason from locked l where not l.goes_on and not l.begins
