-- Pauses a schedule; one that is paused keeps its time, and gets another reason. $1 workspace, $2 name, $3 who asks, $4 reason,
-- $5 failures that were counted up to its last task (null: as they were)
update grns.schedules s
set paused_at = coalesce(s.paused_at, now()), paused_by = $3, pause_reason = $4, failures = coalesce($5, s.failures),
    is_counted = s.is_counted or $5 is not null, version = s.version + 1
where s.workspace = $1 and s.name = $2
returning s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version
