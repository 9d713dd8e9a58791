-- Creates a schedule, or replaces it; without a row nothing is different: see the function.
-- $1 workspace, $2 name, $3 cron, $4 every_seconds, $5 time zone, $6 task type, $7 agent type, $8 payload as text,
-- $9 priority, $10 max_attempts, $11 overlap, $12 catch_up, $13 window_seconds, $14 anchor, $15 next time, $16 who asks,
-- $17 jitter_seconds, $18 pause_after_failures
select s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version
from grns.put_schedule($2, $6, $8::text::jsonb, $7, $3, $4, $5, $9::smallint, $10, $11, $12, $13, $1, $16, $14, $15,
    $17, $18, true) as s
