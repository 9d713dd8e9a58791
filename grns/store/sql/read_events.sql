-- Reads what the log has of a workspace in one stretch of numbers, the oldest first.
-- $1 workspace, $2 behind this number, $3 up to this number, $4 patterns of kinds, $5 task, null for all, $6 rows at most
select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.attempt, e.trace_id, e.causation_id, e.actor,
    e.payload::text as payload, e.created_at
from grns.events e
where e.seq > $2 and e.seq <= $3 and e.workspace = $1 and e.kind ~ any($4::text[])
    and ($5::text is null or e.task_id = $5)
order by e.seq
limit $6
