-- Reads a schedule, and locks it. $1 workspace, $2 name
select s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version, s.is_counted, now() as now
from grns.schedules s
where s.workspace = $1 and s.name = $2
for no key update
