-- Says which task types wait in pools where no live worker handles them and nothing is paused, by the oldest of each
-- priority. $1 workspace, $2 agent_types, $3 how many tasks of a priority are read
select q.agent_type, q.task_type, count(*) as count,
    extract(epoch from now() - min(q.queued_at))::double precision as oldest_seconds
from (
    select w.agent_type, f.task_type, f.queued_at
    from unnest($2::text[]) as w (agent_type)
    cross join generate_series(0, 3) as p (priority)
    cross join lateral (
        select t.task_type, t.queued_at from grns.tasks t
        where t.workspace = $1 and t.agent_type = w.agent_type and t.priority = p.priority
            and t.queued_at is not null
        order by t.queued_at
        limit $3
    ) as f
) as q
where not exists (
        select from grns.workers a
        where a.workspace = $1 and a.agent_type = q.agent_type and a.stopped_at is null
            and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
            and q.task_type = any (a.task_types)
    ) and not exists (
        select from grns.pauses p
        where p.workspace = $1 and p.agent_type = q.agent_type and p.task_type in ('', q.task_type)
            and (p.until is null or p.until > now())
    )
group by q.agent_type, q.task_type
order by 4 desc
