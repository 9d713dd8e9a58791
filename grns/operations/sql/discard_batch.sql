-- Sets one batch of an operation's tasks aside, as `redrive_batch` opens them: all of it or nothing, and the operation
-- notes how far it is. It is no transition: the tasks' versions stay.
-- $1 operation, $2 epoch, $3 ids, $4 versions as they were read, $5 why not (null: it may), $6 cursor behind them,
-- $7 whether nothing is left there
with held as (
    select o.workspace, o.reason, o.created_by, o.created_at
    from grns.operations o
    where o.id = $1 and o.epoch = $2 and o.state in ('pending', 'running')
    for update
),
wanted as (
    select w.* from unnest($3::text[], $4::integer[], $5::text[]) as w (id, version, refusal)
),
locked as (
    select t.id
    from wanted w
    join grns.tasks t on t.id = w.id
    where w.refusal is null and t.version = w.version and t.discarded_at is null
        and t.status in ('dead', 'failed', 'cancelled')
        and t.workspace = (select h.workspace from held h)
        and coalesce(t.finished_at, 'infinity') <= (select h.created_at from held h)
    order by t.id
    for no key update of t skip locked
),
discarded as (
    update grns.tasks t
    set discarded_at = now(), discarded_by = (select h.created_by from held h), operation_id = $1, updated_at = now()
    from locked l
    where t.id = l.id
    returning t.id, t.version, t.workspace, t.task_type, t.status, t.attempt, t.trace_id, t.last_message_id, t.fingerprint
),
logged as (
    insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    select d.version, d.workspace, d.id, 'evt.task.discarded', d.attempt, d.trace_id, d.last_message_id,
        (select h.created_by from held h),
        json_build_object('task_id', d.id, 'task_type', d.task_type, 'status', d.status,
            'actor', (select h.created_by from held h), 'reason', (select h.reason from held h),
            'fingerprint', case when d.status <> 'cancelled' then d.fingerprint end, 'operation_id', $1::text)
    from discarded d
    returning task_id
),
skipped as (
    select s.reason, count(*) as tasks
    from (
        select case when w.refusal is not null then w.refusal when t.id is not null then 'locked'
            else 'moved_meanwhile' end as reason
        from wanted w
        left join grns.tasks t on t.id = w.id and t.version = w.version and t.discarded_at is null
        where w.id not in (select d.id from discarded d)
    ) as s
    group by s.reason
)
select grns.note_batch($1, $6, $7, null, (select count(*) from logged),
        (select jsonb_object_agg(s.reason, s.tasks) from skipped s)) as state,
    (select count(*) from discarded) as moved
from held h
