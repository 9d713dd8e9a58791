-- Logs what has become of agents: a new life, and what their heartbeats tell. Another reaper passes over those that are locked.
-- $1 how many at most
with changed as (
    select g.ctid as at, g.known_health as was, g.known_agent_id is distinct from g.agent_id as is_new,
        grns.agent_health(g, now()) as health
    from grns.agents g
    where (g.known_agent_id is distinct from g.agent_id or g.stopped_at is not null or g.known_health <> 'healthy'
            or g.last_seen_at < now() - g.heartbeat_interval_seconds * interval '3 s')  -- what is quick to see of nearly all
        and (grns.agent_health(g, now()) <> g.known_health or g.known_agent_id is distinct from g.agent_id)
    limit $1
    for no key update of g skip locked
),
noted as (
    update grns.agents g
    set known_health = c.health, known_agent_id = g.agent_id
    from changed c
    where g.ctid = c.at
    returning g.workspace, g.name, g.agent_type, g.agent_id, g.last_seen_at, g.current_task_id, c.was, c.is_new, c.health
),
told as (
    select n.*, case
            when n.health in ('stopped', 'stale', 'dead') then n.health
            when n.health = 'absent' then null
            when n.is_new or n.was in ('absent', 'stopped') then 'started'
            when n.was in ('stale', 'dead') then 'recovered'
        end as event
    from noted n
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, payload)
    select 0, t.workspace, 'evt.agent.' || t.agent_type || '.' || t.event, replace(gen_random_uuid()::text, '-', ''),
        json_build_object('agent', t.name, 'agent_type', t.agent_type, 'agent_id', t.agent_id, 'health', t.health,
            'last_seen_at', t.last_seen_at, 'current_task_id', t.current_task_id)
    from told t
    where t.event is not null
    order by t.workspace, t.name
)
select t.workspace, t.name, t.agent_type, t.agent_id, t.health, t.event from told t
