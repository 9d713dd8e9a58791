-- Reads a stretch of the log, without commands: for replaying events and dead letters. (A command that was lost
-- needs no replay: the workers' poll finds its task.)
-- $1 after this number, $2 up to this number, $3 rows at most
select e.seq, e.version, e.message_id::text as message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id,
    e.causation_id::text as causation_id, e.payload::text as payload, e.created_at
from grns.events e
where e.seq > $1 and e.seq <= $2 and e.kind not like 'cmd.%'
order by e.seq
limit $3
