-- Finds the tasks of submissions by their keys; a row for each that has one. `same` as in grns.submit_tasks.
-- $1 workspaces, $2 keys, $3 task types, $4 agent types, $5 payloads
select w.ordinal, t.id as task_id,
    t.task_type = w.task_type and t.agent_type = w.agent_type and t.payload = w.payload as same, t.trace_id
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]::jsonb[]) with ordinality
    as w (workspace, key, task_type, agent_type, payload, ordinal)
join grns.tasks t on t.workspace = w.workspace and t.idempotency_key = w.key and t.idempotency_key is not null
