-- Creates tasks that need each other: see the function. $1 tasks, as the text of a JSON array, $2 workspace, $3 who asks,
-- $4 their workflow, as the text of a JSON object, or null
select s.name, s.task_id, s.created, s.trace_id
from grns.submit_graph($1::text::jsonb, $2::text, $3::text, $4::text::jsonb, true) as s
