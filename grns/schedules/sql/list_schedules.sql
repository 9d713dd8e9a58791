-- Lists schedules by name. $1 workspace, $2 behind this name, $3 rows at most
select s.workspace, s.name, s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload::text as payload,
    s.priority, s.max_attempts, s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds,
    s.pause_after_failures, s.failures, s.anchor_at, s.next_at, s.last_due_at, s.last_task_id, s.paused_at,
    s.paused_by, s.pause_reason, s.created_at, s.updated_at, s.updated_by, s.declared_at, s.version
from grns.schedules s
where s.workspace = $1 and s.name > $2
order by s.name
limit $3
