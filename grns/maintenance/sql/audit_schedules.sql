-- Looks at one page of decisions about times of schedules: each time has one task at most, which is its own and which has not
-- gone without a trace in the log. What was decided before the log begins is not known.
-- $1 workspace, $2 name, $3 time and $4 source to go on after, $5 how many rows
with page as (
    select r.workspace, r.name, r.due_at, r.source, r.outcome, r.task_id, r.decided_at
    from grns.schedule_runs r
    where (r.workspace, r.name, r.due_at, r.source) > ($1, $2, $3, $4)
    order by r.workspace, r.name, r.due_at, r.source
    limit $5
),
submitted as (
    select p.*, 'schedule ' || p.name || ' of workspace ' || p.workspace || ', ' || p.due_at || ': ' as subject,
        'schedule/' || p.name || '/' || to_char(p.due_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as key
    from page p
    where p.outcome = 'submitted'
),
log_start as (
    select e.created_at from grns.events e order by e.seq limit 1
),
findings as (
    select s.task_id, s.subject || 'its task is not there, and no event tells of it' as detail
    from submitted s
    join log_start l on s.decided_at > l.created_at + interval '1 hour'
    where not exists (select from grns.tasks t where t.id = s.task_id)
        and not exists (select from grns.events e where e.task_id = s.task_id)
    union all
    select s.task_id, s.subject || 'its task has the idempotency key ' || coalesce(t.idempotency_key, 'null')
        || ' in workspace ' || t.workspace
    from submitted s
    join grns.tasks t on t.id = s.task_id
    where (t.workspace, t.idempotency_key) is distinct from (s.workspace, s.key)
    union all
    select s.task_id, s.subject || 'another task of this time is ' || r.task_id
    from submitted s
    join grns.schedule_runs r on r.workspace = s.workspace and r.name = s.name and r.due_at = s.due_at
    where r.source > s.source and r.outcome = 'submitted' and r.task_id <> s.task_id
)
select n.seen, l.workspace, l.name, l.due_at, l.source, f.task_id, case when f.detail is not null then 'schedule_run' end as invariant,
    f.detail
from (select count(*) as seen from page) as n
left join (
    select p.workspace, p.name, p.due_at, p.source from page p order by 1 desc, 2 desc, 3 desc, 4 desc limit 1
) as l on true
left join findings f on true
