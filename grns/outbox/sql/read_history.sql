-- Reads what happened to one task, in order. $1 id, $2 workspace
select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.attempt, e.trace_id, e.causation_id, e.actor,
    e.payload::text as payload, e.created_at, e.was::text as was
from grns.events e
where e.task_id = $1 and e.workspace = $2
order by e.seq
