-- Sends a signal to a task, and answers as the function does; `agent_type` is that of a task that was queued.
-- $1 id of the task, $2 name, $3 value, $4 id of the signal, $5 workspace, $6 who sends it, $7 whether the relay must hear of it
-- from Postgres
select a.answer, case when a.answer = 'woken' then (
    select t.agent_type from grns.tasks t where t.id = $1 and t.limits is null
) end as agent_type
from (select grns.send_signal($1, $2, $3::text::jsonb, $4, $5, $6, $7) as answer) as a
