-- Answers a question, and says what the function says; `agent_type` is that of a task that was queued. $1 id, $2 digest of what was
-- shown, $3 answer, $4 workspace, $5 who answers, $6 comment, $7 hash of the secret by which they do, or null
select a.said, case when a.said = 'answered' then (
    select t.agent_type from grns.tasks t join grns.questions q on q.task_id = t.id where q.id = $1 and t.limits is null
) end as agent_type, (select q.task_id from grns.questions q where q.id = $1) as task_id
from (select grns.answer_question($1, $2, $3::text::jsonb, $4, $5, $6, false, $7) as said) as a
