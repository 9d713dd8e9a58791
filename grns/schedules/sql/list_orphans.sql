-- Lists schedules that a worker has declared and that no live worker declares any more: each live worker of the pool started
-- later than the last one that declared it. A pool without a live worker, or with one that started less than a minute ago and
-- may still declare its schedules, has none. HTTP workers (pid 0) have no schedules. $1 workspace, $2 rows at most
select s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version
from grns.schedules s
join lateral (
    select min(a.started_at) as first_at, max(a.started_at) as last_at
    from grns.workers a
    where a.workspace = s.workspace and a.agent_type = s.agent_type and a.pid <> 0 and a.stopped_at is null
        and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
) as w on w.first_at > s.declared_at and w.last_at < now() - interval '1 minute'
where s.workspace = $1
order by s.name
limit $2
