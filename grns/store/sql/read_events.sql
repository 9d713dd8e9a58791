-- Reads a stretch of the log, without commands and dead letters: for replaying events.
-- $1 after this number, $2 up to this number, $3 rows at most
select e.seq, e.version, e.message_id::text as message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id,
    e.causation_id::text as causation_id, e.payload::text as payload, e.created_at
from grns.events e
where e.seq > $1 and e.seq <= $2 and e.kind like 'evt.%'
order by e.seq
limit $3
