-- Reads a question, as list_questions.sql shows it, and notes who has seen it first, if $3 is not null. $1 id, $2 workspace, $3 actor
with seen as (
    update grns.questions q set seen_at = clock_timestamp(), seen_by = $3
    where q.id = $1 and q.workspace = $2 and q.seen_at is null and $3::text is not null and q.state = 'open'
    returning q.seen_at
)
select q.id, q.workspace, q.task_id, t.task_type, q.kind, q.title, q.asked_of, s.state, q.asked_at, q.due_at, q.answered_by,
    q.answered_at, coalesce((select s.seen_at from seen s), q.seen_at) as seen_at, q.body, q.evidence::text as evidence, q.form::text as form, q.digest, q.answer::text as answer, q.comment
from grns.questions q
join grns.tasks t on t.id = q.task_id
cross join lateral (
    select case when q.state <> 'open' then q.state when t.finished_at is not null then 'ended'
        when q.due_at <= now() then 'expired' else 'open' end as state
) as s
where q.id = $1 and q.workspace = $2
