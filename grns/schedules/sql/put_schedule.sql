-- Creates a schedule, or replaces it; without a row nothing is different. Its phase and next time stay while its rhythm does.
-- $1 workspace, $2 name, $3 cron, $4 every_seconds, $5 time zone, $6 task type, $7 agent type, $8 payload as text,
-- $9 priority, $10 max_attempts, $11 overlap, $12 catch_up, $13 window_seconds, $14 anchor, $15 next time, $16 who asks
insert into grns.schedules as s (workspace, name, cron, every_seconds, time_zone, task_type, agent_type, payload, priority,
    max_attempts, overlap, catch_up, window_seconds, anchor_at, next_at, updated_by)
values ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb, $9, $10, $11, $12, $13, $14, $15, $16)
on conflict (workspace, name) do update
set cron = excluded.cron, every_seconds = excluded.every_seconds, time_zone = excluded.time_zone,
    task_type = excluded.task_type, agent_type = excluded.agent_type, payload = excluded.payload,
    priority = excluded.priority, max_attempts = excluded.max_attempts, overlap = excluded.overlap,
    catch_up = excluded.catch_up, window_seconds = excluded.window_seconds,
    anchor_at = case when (s.cron, s.every_seconds, s.time_zone)
            is not distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone)
        then s.anchor_at else excluded.anchor_at end,
    next_at = case when (s.cron, s.every_seconds, s.time_zone)
            is not distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone)
        then s.next_at else excluded.next_at end,
    updated_at = now(), updated_by = excluded.updated_by, version = s.version + 1
where (s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload, s.priority, s.max_attempts, s.overlap,
        s.catch_up, s.window_seconds)
    is distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone, excluded.task_type, excluded.agent_type,
        excluded.payload, excluded.priority, excluded.max_attempts, excluded.overlap, excluded.catch_up,
        excluded.window_seconds)
returning s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.anchor_at, s.next_at, s.last_due_at,
    s.last_task_id, s.paused_at, s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.version
