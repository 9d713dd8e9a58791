-- Reads how tasks are, now, of which rows of the log tell, those that fall under limits; nothing where another admitter leads
-- by now. `repeats` is how often an attempt of a task was given back to the queue. `has_begun`: whether one has begun since the
-- task was queued; a task may have changed since the rows that are read, so these alone do not tell. The first row stands for
-- no task.
-- $1 epoch, $2 lease in seconds, $3 and $4 bounds of the numbers to read, $5 how many they are, $6 tasks to read besides
with held as (
    update grns.leases l set until = now() + $2::double precision * interval '1 second'
    where l.name = 'admitter' and l.epoch = $1
    returning l.name
),
named as materialized (
    select n.task_id, n.kind
    from held
    cross join unnest($3::bigint[], $4::bigint[]) as s (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.task_id, e.kind from grns.events e
        where e.seq >= s.lower_seq and e.seq < s.upper_seq
        order by e.seq
        limit $5
    ) as n
    where n.kind like 'evt.task.%' or n.kind like 'evt.limit.%'
),
touched as (
    select o.id, sum(o.repeats)::integer as repeats, bool_or(o.has_begun) as has_begun
    from (
        select n.task_id as id, (n.kind in ('evt.task.lease_expired', 'evt.task.released'))::integer as repeats,
            n.kind = 'evt.task.claimed' as has_begun
        from named n
        where n.kind like 'evt.task.%'
        union all
        select s.id, 0, false from held cross join unnest($6::text[]) as s (id)
    ) as o
    group by o.id
)
select pg_current_xact_id()::text::bigint as xid, date_part('epoch', clock_timestamp()) as now,
    exists (select from named n where n.kind like 'evt.limit.%') as has_new_rules,
    null as id, null as workspace, null as limits, null::smallint as priority, null as standing, 0 as repeats,
    false as has_begun
from held
union all
select null, null, null, t.id, t.workspace, t.limits, t.priority,
    case when t.status in ('queued', 'running') then t.status when t.waits_for = 'limit' then 'waiting' end, o.repeats,
    o.has_begun or t.status not in ('cancelled', 'waiting') or coalesce((
        select e.kind = 'evt.task.claimed' from grns.events e
        where e.task_id = t.id and starts_with(e.kind, 'evt.task.') and e.kind in ('evt.task.queued', 'evt.task.claimed')
        order by e.seq desc
        limit 1
    ), false)
from touched o
cross join lateral (
    select t.* from grns.tasks t where t.id = o.id and t.limits is not null offset 0
) as t
