-- Writes a change to the log: of a task, if one is named, with its present version.
-- $1 workspace, $2 kind, $3 who did, $4 payload, $5 the task's id, null where it is about none
insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
select coalesce(t.version, 0), $1::text, $5::text, $2::text, t.attempt,
    coalesce(t.trace_id, replace(gen_random_uuid()::text, '-', '')), t.last_message_id, $3::text, $4::text::json
from (select) as once
left join grns.tasks t on t.id = $5::text
returning message_id
