-- Reads a stretch of the log, of some kinds only: for replaying what a stream has lost.
-- $1 after this number, $2 up to this number, $3 how the kinds begin: evt., dlq., cmd. $4 rows at most
select e.seq, e.version, e.message_id::text as message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id,
    e.causation_id::text as causation_id, e.payload::text as payload, e.created_at
from grns.events e
where e.seq > $1 and e.seq <= $2 and left(e.kind, 4) = any($3::text[])
order by e.seq
limit $4
