-- Deletes ended tasks past their retention, one page of ids at a time; locked tasks stay for another run, and the tasks of
-- a workflow as long as that is there.
-- How many have gone is noted for the counter: no event tells of it.
-- `coalesce` keeps the planner from looking each id up in the index of what has ended, while that is still small.
-- $1 after this id, $2 rows to look at, $3 retention of succeeded and cancelled, $4 of dead and failed, in seconds
with page as (
    select t.id from grns.tasks t where t.id > $1 order by t.id limit $2
),
doomed as (
    select t.id
    from page p
    join grns.tasks t on t.id = p.id
    where ((t.status in ('succeeded', 'cancelled')
            and coalesce(t.finished_at, 'infinity') < now() - $3::double precision * interval '1 second')
        or (t.status in ('dead', 'failed')
            and coalesce(t.finished_at, 'infinity') < now() - $4::double precision * interval '1 second'))
        and not exists (  -- it is still to be read, of a workflow, which goes first, or of a task that has not ended
            select from grns.needs e
            left join grns.tasks p on p.id = e.task_id
            where e.needs = t.id and (e.ended_as is null or e.task_id like 'wf-%' or p.finished_at is null and p.id is not null)
        )
    for update of t skip locked
),
gone as (
    delete from grns.tasks t
    using doomed d
    where t.id = d.id
    returning t.id, t.workspace, t.task_type, t.status, t.fingerprint, t.discarded_at
),
-- What it needed goes with it; that others needed it is still to be read.
needs as (
    delete from grns.needs e where e.task_id = any(array(select g.id from gone g))
),
pauses as (
    delete from grns.task_pauses p where p.task_id = any(array(select g.id from gone g))
),
steps as (
    delete from grns.steps s where s.task_id = any(array(select g.id from gone g))
),
questions as (
    delete from grns.questions q where q.task_id = any(array(select g.id from gone g))
),
progress as (
    delete from grns.progress p where p.task_id = any(array(select g.id from gone g))
),
lines as (
    delete from grns.task_lines l where l.task_id = any(array(select g.id from gone g))
),
labels as (
    delete from grns.labels l where l.task_id = any(array(select g.id from gone g)) returning l.task_id, l.workspace, l.tags
),
tags as (
    delete from grns.tags t
    where t.ctid = any(array(
        select s.ctid
        from labels l
        cross join lateral (  -- the offset has it looked up for each
            select g.ctid from grns.tags g
            where g.workspace = l.workspace and g.tag = any(l.tags) and g.task_id = l.task_id
            offset 0
        ) as s
    ))
),
texts as (
    delete from grns.texts x where x.owner = any(array(select g.id from gone g)) returning x.owner, x.workspace, x.words
),
words as (
    delete from grns.words w
    where w.ctid = any(array(
        select s.ctid
        from texts x
        cross join lateral (  -- the offset has it looked up for each
            select g.ctid from grns.words g
            where g.workspace = x.workspace and g.word = any(x.words) and g.owner = x.owner
            offset 0
        ) as s
    ))
),
blob_refs as (
    delete from grns.blob_refs r where r.owner = any(array(select g.id from gone g))
),
usage as (
    delete from grns.usage u where u.task_id = any(array(select g.id from gone g)) and u.is_summed
),
signals as (
    delete from grns.signals s where s.task_id = any(array(select g.id from gone g))
),
event_waits as (
    delete from grns.event_waits w where w.task_id = any(array(select g.id from gone g))
),
signal_waits as (
    delete from grns.signal_waits w where w.task_id = any(array(select g.id from gone g))
),
keys as (
    delete from grns.unique_keys k
    where k.ctid = any(array(  -- a submission that has one locked gives it to its own task
        select o.ctid from grns.unique_keys o
        where o.task_id = any(array(select g.id from gone g))
        for update skip locked
    ))
),
waits as (
    delete from grns.waits w where w.task_id = any(array(select g.id from gone g))
),
noted as (
    insert into grns.deleted_tasks (workspace, task_type, status, fingerprint, count)
    select g.workspace, g.task_type, g.status,
        case when g.status in ('dead', 'failed') and g.discarded_at is null then g.fingerprint end, count(*)
    from gone g
    group by 1, 2, 3, 4
)
select (select max(p.id) from page p) as last_id, (select count(*) from page) as seen, (select count(*) from gone) as deleted
