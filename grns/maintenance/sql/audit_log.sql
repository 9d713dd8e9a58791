-- Looks at one page of the log: tasks that have gone before they ended, and message ids that are used twice.
-- $1 the number to go on after, $2 how many rows, $3 kinds of events that move a task, $4 those of them that end it
-- (retention takes ended ones)
with page as (
    select e.seq, e.task_id, e.message_id, e.kind
    from grns.events e
    where e.seq > $1
    order by e.seq
    limit $2
),
gone as (
    select p.task_id, max(p.seq) as seq
    from page p
    where p.task_id is not null and not exists (select from grns.tasks t where t.id = p.task_id)
    group by p.task_id
),
findings as (
    select g.task_id, 'lost_task' as invariant,
        'there is no such task, and the last that the log says of it is ' || l.kind as detail
    from gone g
    cross join lateral (
        select e.kind from grns.events e
        where e.task_id = g.task_id and e.kind = any($3::text[])
        order by e.version desc
        limit 1
    ) l
    where not l.kind = any($4::text[])
    union all
    select min(p.task_id), 'message_id', p.message_id || ' is the id of ' || count(*) || ' messages'
    from page p
    group by p.message_id
    having count(*) > 1
)
select (select count(*) from page) as seen, (select max(p.seq) from page p) as last_seq,
    f.task_id, f.invariant, f.detail
from (select) as once
left join findings f on true
