-- Deletes ended tasks past their retention, one page of ids at a time; locked tasks stay for another run, and the tasks of
-- a workflow as long as that is there.
-- How many have gone is noted for the counter: no event tells of it.
-- `coalesce` keeps the planner from looking each id up in the index of what has ended, while that is still small.
-- The first row tells of the page. Where it is archived, the rest are the rows that have gone, as JSON, each with its task.
-- $1 after this id, $2 rows to look at, $3 retention of succeeded and cancelled, $4 of dead and failed, in seconds,
-- $5 ids of those that may go; null: any, $6 whether the rows that have gone are returned
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
        and ($5::text[] is null or t.id = any($5))
        and not exists (  -- it was restored from an archive
            select from grns.kept_tasks k where k.task_id = t.id and k.until > now()
        )
    for update of t skip locked
),
gone as (
    delete from grns.tasks t
    using doomed d
    where t.id = d.id
    returning t.id, t.workspace, t.task_type, t.status, t.fingerprint, t.discarded_at, t.finished_at,
        case when $6::boolean then row_to_json(t)::text end as document
),
-- What it needed goes with it; that others needed it is still to be read.
needs as (
    delete from grns.needs e where e.task_id = any(array(select g.id from gone g))
    returning e.task_id as owner, case when $6 then row_to_json(e)::text end as document
),
pauses as (
    delete from grns.task_pauses p where p.task_id = any(array(select g.id from gone g))
),
steps as (
    delete from grns.steps s where s.task_id = any(array(select g.id from gone g))
    returning s.task_id as owner, case when $6 then row_to_json(s)::text end as document
),
questions as (
    delete from grns.questions q where q.task_id = any(array(select g.id from gone g))
    returning q.task_id as owner, case when $6 then row_to_json(q)::text end as document
),
progress as (
    delete from grns.progress p where p.task_id = any(array(select g.id from gone g))
    returning p.task_id as owner, case when $6 then row_to_json(p)::text end as document
),
lines as (
    delete from grns.task_lines l where l.task_id = any(array(select g.id from gone g))
    returning l.task_id as owner, case when $6 then row_to_json(l)::text end as document
),
labels as (
    delete from grns.labels l where l.task_id = any(array(select g.id from gone g))
    returning l.task_id, l.workspace, l.tags, case when $6 then row_to_json(l)::text end as document
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
    returning r.owner as owner, case when $6 then row_to_json(r)::text end as document
),
usage as (
    delete from grns.usage u where u.task_id = any(array(select g.id from gone g)) and u.is_summed
    returning u.task_id as owner, case when $6 then row_to_json(u)::text end as document
),
signals as (
    delete from grns.signals s where s.task_id = any(array(select g.id from gone g))
    returning s.task_id as owner, case when $6 then row_to_json(s)::text end as document
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
    returning w.task_id as owner, case when $6 then row_to_json(w)::text end as document
),
noted as (
    insert into grns.deleted_tasks (workspace, task_type, status, fingerprint, count)
    select g.workspace, g.task_type, g.status,
        case when g.status in ('dead', 'failed') and g.discarded_at is null then g.fingerprint end, count(*)
    from gone g
    group by 1, 2, 3, 4
)
select (select max(p.id) from page p) as last_id, (select count(*) from page) as seen, (select count(*) from gone) as deleted,
    null as name, null as owner, null as workspace, null::timestamptz as at, null as document
union all select null, null, null, 'tasks', g.id, g.workspace, g.finished_at, g.document from gone g where $6
union all select null, null, null, 'needs', e.owner, null, null, e.document from needs e where $6
union all select null, null, null, 'waits', w.owner, null, null, w.document from waits w where $6
union all select null, null, null, 'steps', s.owner, null, null, s.document from steps s where $6
union all select null, null, null, 'signals', s.owner, null, null, s.document from signals s where $6
union all select null, null, null, 'questions', q.owner, null, null, q.document from questions q where $6
union all select null, null, null, 'progress', p.owner, null, null, p.document from progress p where $6
union all select null, null, null, 'task_lines', l.owner, null, null, l.document from lines l where $6
union all select null, null, null, 'labels', l.task_id, null, null, l.document from labels l where $6
union all select null, null, null, 'blob_refs', r.owner, null, null, r.document from blob_refs r where $6
union all select null, null, null, 'usage', u.owner, null, null, u.document from usage u where $6
