-- Opens one batch of an operation's tasks again: those that have not changed since they were read. One that needs other
-- tasks waits for them once more; the follower queues it, and the admitter one that falls under limits. In the same
-- statement the operation notes its progress: a runner that dies or is stopped has moved all of the batch or nothing.
-- Answers with the operation's state, and how many were moved; with nothing where it is not ours to move any more.
-- `coalesce` keeps the planner from looking for them among all that have ended.
-- $1 operation, $2 epoch, $3 ids, $4 versions and $5 times of the last change, as they were read, $6 new payloads
-- (null: as it is), $7 why not (null: it may), $8 cursor behind them, $9 whether nothing is left there,
-- $10 whether they are to be the canary
with held as (
    select o.workspace, o.agent_type, o.reason, o.created_by, o.created_at
    from grns.operations o
    where o.id = $1 and o.epoch = $2 and o.state in ('pending', 'running')
    for update
),
wanted as (
    select w.*
    from unnest($3::text[], $4::integer[], $5::timestamptz[], $6::text[]::jsonb[], $7::text[])
        as w (id, version, updated_at, payload, refusal)
),
locked as (
    select t.id, t.status as was, t.discarded_at is not null as was_discarded, t.last_message_id as led_here, w.payload,
        gen_random_uuid() as event_id, exists (select from grns.waits n where n.task_id = t.id) as is_needy,
        (select n.until from grns.waits n where n.task_id = t.id) as until
    from wanted w
    join grns.tasks t on t.id = w.id
    where w.refusal is null and t.version = w.version and t.updated_at = w.updated_at
        and t.status in ('dead', 'failed', 'cancelled') and coalesce(t.operation_id, 0) < $1
        and t.workspace = (select h.workspace from held h)
        and coalesce(t.finished_at, 'infinity') <= (select h.created_at from held h)
    order by t.id
    for no key update of t skip locked
),
redriven as (
    -- The whole shape is set, as in `redrive`.
    update grns.tasks t
    set status = case when l.is_needy or t.limits is not null then 'waiting' else 'queued' end,
        waits_for = case when l.is_needy then 'tasks' when t.limits is not null then 'limit' end, owner_agent_id = null, lease_id = null, lease_until = null,
        payload = coalesce(l.payload, t.payload),
        agent_type = coalesce((select h.agent_type from held h), t.agent_type),
        uncounted_attempts = t.attempt, released = 0, cancel_requested_at = null, cancel_reason = null,
        cancel_actor = null, next_attempt_at = case when l.is_needy then l.until end, queued_at = case when not l.is_needy and t.limits is null then now() end,
        queued_reason = 'redriven', finished_at = null,
        discarded_at = null, discarded_by = null, operation_id = $1,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id
    returning t.id, t.version, t.workspace, t.task_type, t.agent_type, t.priority, t.route, t.attempt, t.trace_id, t.fingerprint,
        t.status, t.waits_for, l.was, l.was_discarded, l.event_id, l.led_here
),
followed as (
    insert into grns.operation_tasks (operation_id, task_id, version)
    select $1, r.id, r.version from redriven r
    on conflict do nothing
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        was, actor, payload)
    select r.version, r.event_id, r.workspace, r.id, 'evt.task.' || r.status, r.attempt,
        case r.status when 'queued' then grns.command_route(r.agent_type, r.priority, r.route) end, r.trace_id, r.led_here,
        left(r.was, 1)::"char", (select h.created_by from held h),
        json_strip_nulls(json_build_object('task_id', r.id, 'task_type', r.task_type, 'agent_type', r.agent_type,
            'priority', r.priority, 'reason', 'redriven', 'actor', (select h.created_by from held h),
            -- of open errors: a cancelled task had no error to mend, a discarded one was dealt with
            'fingerprint', case when r.was <> 'cancelled' and not r.was_discarded then r.fingerprint end,
            'operation_id', $1::text, 'why', (select h.reason from held h), 'waits_for', r.waits_for))
    from redriven r
    returning task_id
),
skipped as (
    select s.reason, count(*) as tasks
    from (
        select case when w.refusal is not null then w.refusal when t.id is not null then 'locked'
            else 'moved_meanwhile' end as reason
        from wanted w
        left join grns.tasks t on t.id = w.id and t.version = w.version and t.updated_at = w.updated_at
            and coalesce(t.operation_id, 0) < $1
        where w.id not in (select r.id from redriven r)
    ) as s
    group by s.reason
)
select grns.note_batch($1, $8, $9,
        case when $10::boolean then (select r.id from redriven r limit 1) end,
        (select count(*) from logged),
        (select jsonb_object_agg(s.reason, s.tasks) from skipped s)) as state,
    (select count(*) from redriven) as moved
from held h
