-- Notes that a worker is alive, and so is its agent, unless that has begun another life; answers what this life is told to do,
-- and whether it has said that it ends.
-- $1 agent_id, $2 for how many seconds it has had room and taken nothing, $3 how many tasks it runs, $4 workspace that it
-- works in (null: whichever), $5 its memory in MiB and $6 its CPU in percent (null: unknown)
with touched as (
    update grns.workers a
    set last_seen_at = now(), worked_at = now() - $2::double precision * interval '1 second', running = $3
    where a.agent_id = $1 and ($4::text is null or a.workspace = $4::text)
    returning a.agent_id, a.workspace, a.agent, a.agent_type
),
-- Whom a claim holds is passed over: a lease is being renewed by who asks here, and cannot wait for the claims of others.
free as (
    select g.workspace, g.name, t.agent_id
    from touched t
    join grns.agents g on g.workspace = t.workspace and g.name = t.agent and g.agent_type = t.agent_type
        and coalesce(g.agent_id, t.agent_id) = t.agent_id and g.stopped_at is null
    for no key update of g skip locked
),
beat as (
    update grns.agents g
    set last_seen_at = now(), running = $3, memory_mb = $5, cpu_percent = $6,
        agent_id = f.agent_id, started_at = coalesce(g.started_at, now())  -- if it was registered after its worker had begun
    from free f
    where g.workspace = f.workspace and g.name = f.name
)
select t.agent_id, grns.life_order(g, t.agent_id) as "order", g.stopped_at is not null and g.agent_id = t.agent_id as has_stopped
from touched t
left join grns.agents g on g.workspace = t.workspace and g.name = t.agent and g.agent_type = t.agent_type
