-- Says of pools how many live workers they have, how many slots and running tasks these had at their last heartbeats,
-- and of each priority, most urgent first, how many tasks are queued, and for how long the oldest one has been.
-- $1 workspace, $2 agent_types, $3 up to how many tasks of a priority are counted
select w.agent_type, h.workers, h.slots, h.running, l.queued, l.oldest_seconds
from unnest($2::text[]) with ordinality as w (agent_type, place)
cross join lateral (
    select count(*) as workers, coalesce(sum(a.concurrency), 0) as slots, coalesce(sum(a.running), 0) as running
    from grns.workers a
    where a.workspace = $1 and a.agent_type = w.agent_type and a.stopped_at is null
        and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
) as h
cross join lateral (
    select array_agg(q.queued order by p.priority) as queued,
        array_agg(extract(epoch from now() - q.oldest_at)::double precision order by p.priority) as oldest_seconds
    from generate_series(0, 3) as p (priority)
    cross join lateral (
        select count(*) as queued, min(f.queued_at) as oldest_at
        from (
            select t.queued_at from grns.tasks t
            where t.workspace = $1 and t.agent_type = w.agent_type and t.priority = p.priority
                and t.queued_at is not null
            order by t.queued_at
            limit $3
        ) as f
    ) as q
) as l
order by w.place
