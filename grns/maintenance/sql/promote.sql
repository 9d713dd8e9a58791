-- Queues what is due: retries, and tasks that were handed in with a delay. One that falls under limits waits until it is
-- admitted.
-- $1 how many at most, $2 how far back to look, in seconds (null: everywhere)
with locked as (
    select t.id, t.status as was, t.next_attempt_at as was_due_at,
        gen_random_uuid() as event_id,
        -- a retry follows from its retry_scheduled event, a delayed task from its submitter
        case t.status when 'retry_wait' then t.last_message_id else t.causation_id end as led_here
    from grns.tasks t
    where t.next_attempt_at is not null and t.next_attempt_at <= now()
        and t.next_attempt_at >= coalesce(now() - $2::double precision * interval '1 second', '-infinity') and t.status in ('retry_wait', 'waiting')
    order by t.next_attempt_at
    limit $1
    for no key update of t skip locked
),
promoted as (
    update grns.tasks t
    set status = case when t.limits is null then 'queued' else 'waiting' end,
        waits_for = case when t.limits is not null then 'limit' end,
        next_attempt_at = null, queued_at = case when t.limits is null then now() end,
        queued_reason = case l.was when 'retry_wait' then 'retry_due' else 'new_task' end,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id
    returning t.*, l.event_id, l.led_here, l.was, l.was_due_at
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        was, payload)
    select p.version, p.event_id, p.workspace, p.id, 'evt.task.' || p.status, p.attempt,
        case p.status when 'queued' then grns.command_route(p.agent_type, p.priority, p.route) end, p.trace_id, p.led_here,
        case p.was when 'retry_wait' then 't'::"char" else 'w'::"char" end,
        json_strip_nulls(json_build_object('task_id', p.id, 'task_type', p.task_type, 'agent_type', p.agent_type,
            'priority', p.priority, 'reason', p.queued_reason, 'waits_for', p.waits_for))
    from promoted p
)
select p.id, p.workspace, p.agent_type, p.was_due_at, p.queued_reason, p.status from promoted p
