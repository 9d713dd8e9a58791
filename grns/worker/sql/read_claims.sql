-- Reads back what a claim whose answer was lost has claimed.
-- $1 ids, $2 lease_ids
select t.id, t.task_type, t.priority, t.payload::text as payload, t.attempt, t.attempt_limit, t.uncounted_attempts, t.lease_id,
    t.trace_id, t.created_at,
    (select e.causation_id from grns.events e where e.task_id = t.id and e.message_id = t.last_message_id) as causation_id,
    0.0::double precision as queued_seconds
from unnest($1::text[], $2::uuid[]) as w (id, lease_id)
join grns.tasks t on t.id = w.id
where t.lease_id = w.lease_id and t.status = 'running'
