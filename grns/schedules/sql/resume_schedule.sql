-- Resumes a schedule from its next time on: what was due meanwhile was not to be. Failures are counted from zero, of tasks
-- that it submits from now on. Without a row it was not paused.
-- $1 workspace, $2 name, $3 next time, $4 version that this was counted for
update grns.schedules s
set paused_at = null, paused_by = null, pause_reason = null, next_at = $3, failures = 0, is_counted = true,
    version = s.version + 1
where s.workspace = $1 and s.name = $2 and s.paused_at is not null and s.version = $4
returning s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version
