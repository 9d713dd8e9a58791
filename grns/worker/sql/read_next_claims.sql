-- Reads back what a poll has claimed whose answer was lost: only its lease ids name it.
-- $1 lease_ids
select t.id, t.task_type, t.priority, t.payload::text as payload, t.attempt, t.attempt_limit, t.uncounted_attempts, t.lease_id,
    t.trace_id, t.created_at,
    (select e.causation_id from grns.events e where e.task_id = t.id and e.message_id = t.last_message_id) as causation_id,
    0.0::double precision as queued_seconds
from grns.tasks t
where t.lease_until is not null and t.lease_id = any($1::uuid[]) and t.status = 'running'
