-- Returns for each priority subject of each pool that has tasks, or has live workers, or is named, since when its oldest task has
-- been queued (null: it is empty), and of its oldest tasks those that no live worker of their agent type has a handler for: of which
-- types, and for how long the first of each has been queued. Paused tasks need no worker. As what is served goes
-- away, what is not comes to the front: no more than the front of each queue is read.
-- Of pools that are named, tasks are read that have been queued since a time: what lies before may be many dead entries. Pools that
-- are not named are looked for between them; no name has a character behind `~`.
-- $1 how many of these at most, $2 how many tasks of a priority, $3 workspaces, $4 agent types and $5 times of pools, as many each
with recursive named as (
    select n.workspace, n.agent_type, n.since
    from unnest($3::text[], $4::text[], $5::timestamptz[]) as n (workspace, agent_type, since)
),
gaps as (
    select e.workspace as low_workspace, e.agent_type as low_agent_type,
        coalesce(lead(e.workspace) over ends, '~') as high_workspace,
        coalesce(lead(e.agent_type) over ends, '') as high_agent_type
    from (
        select n.workspace collate "C", n.agent_type collate "C" from named n
        union all
        select '', ''
    ) as e (workspace, agent_type)
    window ends as (order by e.workspace collate "C", e.agent_type collate "C")
),
step as (
    select g.high_workspace, g.high_agent_type, n.workspace, n.agent_type, 1 as place
    from gaps g
    cross join lateral (
        select t.workspace, t.agent_type
        from grns.tasks t
        where t.queued_at is not null and (t.workspace, t.agent_type) > (g.low_workspace, g.low_agent_type)
            and (t.workspace, t.agent_type) < (g.high_workspace, g.high_agent_type)
        order by t.workspace, t.agent_type
        limit 1
    ) as n
    union all
    select s.high_workspace, s.high_agent_type, n.workspace, n.agent_type, s.place + 1
    from step s
    cross join lateral (
        select t.workspace, t.agent_type
        from grns.tasks t
        where t.queued_at is not null and (t.workspace, t.agent_type) > (s.workspace, s.agent_type)
            and (t.workspace, t.agent_type) < (s.high_workspace, s.high_agent_type)
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
    (select s.workspace, s.agent_type from step s limit $1)
    union
    select s.workspace collate "C", s.agent_type collate "C" from serving s
    union
    select n.workspace collate "C", n.agent_type collate "C" from named n
),
queues as (
    select p.workspace, p.agent_type, s.workspace is not null as is_served, r.priority, f.oldest_at, f.task_types, f.oldest_ats
    from pools p
    cross join generate_series(0, 3) as r (priority)
    left join serving s on s.workspace = p.workspace and s.agent_type = p.agent_type
    left join named n on n.workspace = p.workspace and n.agent_type = p.agent_type
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
                    and t.queued_at is not null and t.queued_at >= coalesce(n.since, '-infinity')
                order by t.queued_at
                limit $2
            ) as q
            group by q.task_type
        ) as t
    ) as f
)
select now() as read_at, l.workspace, l.agent_type, l.is_served, l.priority, l.oldest_at,
    coalesce(l.task_types, '{}') as unserved,
    array(
        select extract(epoch from now() - u.at)::double precision
        from unnest(l.oldest_ats) with ordinality as u (at, place)
        order by u.place
    ) as unserved_after_seconds
from queues l
