-- Writes changes to the log, in their order: of a task, if one is named, with its present version.
-- $1 workspace, $2 kinds, $3 who did, $4 payloads, $5 the task's id, null where they are about none
insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
select coalesce(t.version, 0), $1::text, $5::text, c.kind, t.attempt,
    coalesce(t.trace_id, replace(gen_random_uuid()::text, '-', '')), t.last_message_id, $3::text, c.payload::json
from unnest($2::text[], $4::text[]) with ordinality as c (kind, payload, place)
left join grns.tasks t on t.id = $5::text
order by c.place
returning message_id
