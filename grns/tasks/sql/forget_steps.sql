-- Forgets a step of a task that has ended, and all that were recorded after it; signals that these had taken can be taken again.
-- Answers with how many were forgotten; with the status of the task, null if there is none; and whether it had the step.
-- $1 id, $2 workspace, $3 step
with task as (
    select t.id, t.status from grns.tasks t where t.id = $1 and t.workspace = $2 for no key update of t
),
first as (
    select s.task_id, s.recorded_at
    from task t
    join grns.steps s on s.task_id = t.id and s.name = $3
    where t.status in ('failed', 'dead', 'cancelled')
),
gone as (
    delete from grns.steps s
    using first f
    where s.task_id = f.task_id and (s.recorded_at >= f.recorded_at or s.name = $3 || ' until')
    returning s.name
),
untaken as (
    update grns.signals g set taken_by = null
    from first f
    where g.task_id = f.task_id and g.taken_by in (select o.name from gone o) and g.name not like 'question %'
),
unasked as (  -- they are asked again
    delete from grns.questions q using first f
    where q.task_id = f.task_id and (q.state = 'open' or q.step in (select o.name from gone o))
    returning q.id
),
unanswered as (
    delete from grns.signals g using unasked u, first f where g.task_id = f.task_id and g.name = 'question ' || u.id
),
unwaited as (
    delete from grns.signal_waits w using first f where w.task_id = f.task_id
)
select (select count(*) from gone) as forgotten, (select t.status from task t) as status,
    exists (select from grns.steps s join task t on t.id = s.task_id where s.name = $3) as has_step
