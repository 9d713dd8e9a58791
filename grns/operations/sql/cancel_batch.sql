-- Cancels one batch of an operation's tasks, as `cancel` does it, and as `redrive_batch` opens them: all of it or
-- nothing, and the operation notes how far it is. Those that run are asked to end.
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
    select t.id, t.status as was, t.last_message_id as led_here, t.owner_agent_id as agent_id,
        gen_random_uuid() as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    where w.refusal is null and t.version = w.version and t.status in ('queued', 'retry_wait', 'waiting', 'running')
        and coalesce(t.operation_id, 0) < $1
        and t.workspace = (select h.workspace from held h) and t.created_at <= (select h.created_at from held h)
    order by t.id
    for no key update of t skip locked
),
requested as (
    update grns.tasks t
    set cancel_requested_at = coalesce(t.cancel_requested_at, now()),
        cancel_reason = coalesce(t.cancel_reason, (select h.reason from held h)),
        cancel_actor = coalesce(t.cancel_actor, (select h.created_by from held h)), operation_id = $1, updated_at = now()
    from locked l
    where t.id = l.id and l.was = 'running'
    returning t.id, l.agent_id
),
cancelled as (
    update grns.tasks t
    set status = 'cancelled', owner_agent_id = null, lease_id = null, lease_until = null,
        cancel_requested_at = now(), cancel_reason = (select h.reason from held h),
        cancel_actor = (select h.created_by from held h), next_attempt_at = null, waits_for = null,
        queued_at = null, finished_at = now(), operation_id = $1, updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id and l.was <> 'running'
    returning t.id, t.version, t.workspace, t.task_type, t.agent_type, t.attempt, t.trace_id, t.cancel_reason,
        t.cancel_actor, l.was, l.event_id, l.led_here
),
moved as (
    select c.id, null as agent_id from cancelled c
    union all
    select r.id, r.agent_id from requested r
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was, actor,
        payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.cancelled', c.attempt, c.trace_id, c.led_here,
        case c.was when 'retry_wait' then 't' else left(c.was, 1) end::"char", c.cancel_actor,
        json_build_object('task_id', c.id, 'task_type', c.task_type, 'agent_type', c.agent_type,
            'agent_id', null, 'attempt', c.attempt, 'reason', c.cancel_reason, 'actor', c.cancel_actor,
            'operation_id', $1::text)
    from cancelled c
    returning task_id
),
skipped as (
    select s.reason, count(*) as tasks
    from (
        select case when w.refusal is not null then w.refusal when t.id is not null then 'locked'
            else 'moved_meanwhile' end as reason
        from wanted w
        left join grns.tasks t on t.id = w.id and t.version = w.version and coalesce(t.operation_id, 0) < $1
        where w.id not in (select m.id from moved m)
    ) as s
    group by s.reason
)
select grns.note_batch($1, $6, $7, null, (select count(*) from logged) + (select count(*) from requested),
        (select jsonb_object_agg(s.reason, s.tasks) from skipped s)) as state,
    (select count(*) from moved) as moved,
    array(select distinct m.agent_id from moved m where m.agent_id is not null) as agent_ids
from held h
