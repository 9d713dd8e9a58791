-- Returns for each priority subject that has tasks, or has live workers, how long its oldest task has been queued (0: it is
-- empty), and of its oldest tasks those that no live worker of their agent type has a handler for: of which types,
-- and for how long the first of each has been queued. Paused tasks need no worker. As what is served goes
-- away, what is not comes to the front: no more than the front of each queue is read.
-- $1 how many agent types at most, $2 how many tasks of a priority
with recursive step as (
    (select t.workspace, t.agent_type, 1 as place
    from grns.tasks t
    where t.queued_at is not null
    order by t.workspace, t.agent_type
    limit 1)
    union all
    select n.workspace, n.agent_type, s.place + 1
    from step s
    cross join lateral (
        select t.workspace, t.agent_type
        from grns.tasks t
        where t.queued_at is not null and (t.workspace, t.agent_type) > (s.workspace, s.agent_type)
        order by t.workspace, t.agent_type
        limit 1
    ) as n
    where s.place < $1
),
serving as (
    select a.workspace, a.agent_type, array_agg(distinct h.task_type) as task_types
    from grns.workers a
    cross join lateral unnest(a.task_types) as h (task_type)
    where a.stopped_at is null
        and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
    group by a.workspace, a.agent_type
),
pools as (
    select s.workspace, s.agent_type from step s
    union
    select s.workspace collate "C", s.agent_type collate "C" from serving s
    limit $1
),
queues as (
    select p.workspace, p.agent_type, r.priority, f.oldest_at, f.task_types, f.oldest_ats
    from pools p
    cross join generate_series(0, 3) as r (priority)
    left join serving s on s.workspace = p.workspace and s.agent_type = p.agent_type
    cross join lateral (
        select min(t.oldest_at) as oldest_at,
            array_agg(t.task_type) filter (where t.is_unserved) as task_types,
            array_agg(t.oldest_at) filter (where t.is_unserved) as oldest_ats
        from (
            select q.task_type, min(q.queued_at) as oldest_at,
                q.task_type <> all(coalesce(s.task_types, '{}')) and not exists (
                    select from grns.pauses u
                    where u.workspace = p.workspace and u.agent_type = p.agent_type
                        and u.task_type in ('', q.task_type) and (u.until is null or u.until > now())
                ) as is_unserved
            from (
                select t.task_type, t.queued_at
                from grns.tasks t
                where t.workspace = p.workspace and t.agent_type = p.agent_type and t.priority = r.priority
                    and t.queued_at is not null
                order by t.queued_at
                limit $2
            ) as q
            group by q.task_type
        ) as t
    ) as f
)
select l.workspace, l.agent_type, l.priority,
    coalesce(extract(epoch from now() - l.oldest_at), 0)::double precision as oldest_seconds,
    coalesce(l.task_types, '{}') as unserved,
    array(
        select extract(epoch from now() - u.at)::double precision
        from unnest(l.oldest_ats) with ordinality as u (at, place)
        order by u.place
    ) as unserved_after_seconds
from queues l
