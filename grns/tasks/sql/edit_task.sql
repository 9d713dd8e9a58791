-- Changes a task that does not run, unless it was changed since it was read. It is no transition: the version
-- stays, so the time of the last change tells too. One that is queued gets a command of its new priority.
-- Answers with `changed`, with `changed meanwhile`, with the status of one that cannot be changed, or with `not waiting`
-- where there is nothing that it waits for; with nothing where there is no such task.
-- $1 id, $2 workspace, $3 version and $4 time of the last change, as they were read, $5 priority, $6 in how many seconds
-- it is due, or $10 when, $7 payload, each null: as it is, $8 who asks, $9 reason,
-- $11 route (null: as it is)
with locked as (
    select t.id, t.priority as old_priority, t.route as old_route, t.next_attempt_at as old_due_at, t.payload as old_payload, case
            when t.version <> $3 or t.updated_at <> $4 then 'changed meanwhile'
            when t.status in ('running', 'succeeded') then t.status
            when ($6::double precision is not null or $10::timestamptz is not null) and t.next_attempt_at is null then 'not waiting'
            else 'changed'
        end as answer
    from grns.tasks t
    where t.id = $1 and t.workspace = $2
    for no key update
),
changed as (
    update grns.tasks t
    set priority = coalesce($5::smallint, t.priority), route = coalesce($11::text, t.route), payload = coalesce($7::text::jsonb, t.payload),
        next_attempt_at = coalesce($10, now() + $6 * interval '1 second', t.next_attempt_at), updated_at = now()
    from locked l
    where t.id = l.id and l.answer = 'changed'
    returning t.id, t.version, t.workspace, t.task_type, t.agent_type, t.priority, t.route, t.status, t.attempt, t.trace_id,
        t.last_message_id, t.next_attempt_at, t.payload is distinct from l.old_payload as has_payload,
        l.old_priority, l.old_route, l.old_due_at, l.old_payload, gen_random_uuid() as event_id
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        actor, payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.changed', c.attempt,
        case c.status when 'queued' then grns.command_route(c.agent_type, c.priority, c.route) end, c.trace_id, c.last_message_id, $8::text,
        json_build_object('task_id', c.id, 'task_type', c.task_type, 'status', c.status,
            'fields', array_remove(array[case when $5 is not null then 'priority' end,
                case when coalesce($10, now() + $6 * interval '1 second') is not null then 'next_attempt_at' end, case when $7 is not null then 'payload' end,
                case when $11 is not null then 'route' end], null),
            'priority', c.priority, 'next_attempt_at', c.next_attempt_at, 'target_agent', grns.agent_of(c.route),
            'required_capabilities', grns.capabilities_of(c.route), 'actor', $8::text, 'reason', $9::text,
            -- as it was: how it is now, the row says
            'before', jsonb_strip_nulls(jsonb_build_object(
                'priority', case when c.priority <> c.old_priority then c.old_priority end,
                'route', case when c.route <> c.old_route then c.old_route end,
                'next_attempt_at', case when c.next_attempt_at <> c.old_due_at then c.old_due_at end))
                || case when c.has_payload then jsonb_build_object('payload', c.old_payload) else '{}' end)
    from changed c
)
select l.answer from locked l
