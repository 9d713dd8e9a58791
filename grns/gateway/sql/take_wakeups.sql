-- Takes agents to wake: a task waits for them, they have room, and they are told nothing else. One process takes each. An agent
-- that has been here since its last wakeup is woken again after a few seconds ($2), any other after $1, twice as long for each
-- wakeup that failed, or session that did not come, since then. So is one that has been here and has left the task that it was told
-- of: perhaps it cannot run it. Of a pool, no more sessions are begun than tasks wait, those included that have not come yet.
-- $1 and $2 in seconds, $3 longest pause in seconds, $4 how many at most, $5 whether sessions can be begun, $6 whether URLs are called
with busy as materialized (
    select k.workspace, k.agent_type, (
        select count(*) from (
            select from grns.tasks t where t.workspace = k.workspace and t.agent_type = k.agent_type and t.queued_at is not null limit 1000
        ) as w
    ) - (
        select count(*) from grns.agents o
        where o.workspace = k.workspace and o.agent_type = k.agent_type and o.coordinator_enabled
            and o.nudged_at > now() - $1::double precision * interval '1 second' and (o.last_seen_at > o.nudged_at) is not true
    ) as sessions
    from (
        select distinct g.workspace, g.agent_type from grns.agents g where g.agent_url is not null or g.coordinator_enabled
    ) as k
    where exists (
        select from grns.tasks t where t.workspace = k.workspace and t.agent_type = k.agent_type and t.queued_at is not null)
),
due as (
    select g.workspace, g.name, g.nudged_at, w.task_id, s.is_spawned, b.sessions,
        row_number() over (partition by g.workspace, g.agent_type, s.is_spawned order by g.nudged_at nulls first, g.name) as place,
        row_number() over (partition by g.workspace order by g.nudged_at nulls first, g.name) as turn
    from busy b
    join grns.agents g on g.workspace = b.workspace and g.agent_type = b.agent_type
    cross join lateral (
        select grns.agent_health(g, now()) in ('absent', 'stopped', 'stale', 'dead') as is_away
    ) as h
    cross join lateral (select $5::boolean and g.coordinator_enabled and h.is_away as is_spawned) as s
    cross join lateral (select grns.work_for(g) as task_id) as w
    where (s.is_spawned or $6::boolean and g.agent_url is not null)
        and (h.is_away or g.running < g.max_concurrent_tasks and g.ordered is null)
        and (g.nudged_at is null
            or g.nudged_at < now() - least($1::double precision * 2 ^ least(g.nudge_failures, 10), $3) * interval '1 second'
            or g.last_seen_at > g.nudged_at and g.nudged_at < now() - $2::double precision * interval '1 second'
                and w.task_id is distinct from g.nudged_task_id)
        and w.task_id is not null
),
-- However many a workspace has, those of others have their turn.
chosen as (
    select d.* from due d where not d.is_spawned or d.place <= d.sessions order by d.turn, d.nudged_at nulls first limit $4
),
locked as (
    select g.ctid as at, c.task_id, c.is_spawned
    from chosen c
    join grns.agents g on g.workspace = c.workspace and g.name = c.name and g.nudged_at is not distinct from c.nudged_at
    for no key update of g skip locked
),
taken as (
    update grns.agents g
    set nudged_at = now(), nudged_task_id = l.task_id,
        nudge_failures = case when g.last_seen_at > g.nudged_at and l.task_id is distinct from g.nudged_task_id then 0
            else g.nudge_failures end + l.is_spawned::integer
    from locked l
    where g.ctid = l.at
    returning g.workspace, g.name, g.agent_type, g.agent_url, l.task_id, l.is_spawned
)
select k.workspace, k.name, k.agent_type, k.agent_url, k.task_id, k.is_spawned, t.task_type, t.trace_id,
    case when k.is_spawned then t.payload::text end as payload, case when k.is_spawned then p.checkpoint::text end as checkpoint
from taken k
join grns.tasks t on t.id = k.task_id
left join grns.progress p on p.task_id = k.task_id
