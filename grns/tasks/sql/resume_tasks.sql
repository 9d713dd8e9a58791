-- Resumes paused tasks: each waits for the tasks that it needs, for its time, or for its limits, or is queued. $1 ids, $2 workspace,
-- $3 who asks, $4 why
with wanted as (
    select w.id from unnest($1::text[]) as w (id)
),
locked as (
    select t.id, t.status as was, t.waits_for as waited_for, t.last_message_id as led_here, p.due_at,
        case when exists (select from grns.waits w where w.task_id = t.id) then 'tasks'
            when p.due_at > statement_timestamp() then 'time' when t.limits is not null then 'limit' end as target,
        (select w.until from grns.waits w where w.task_id = t.id) as until,
        gen_random_uuid() as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    left join grns.task_pauses p on p.task_id = t.id
    where t.workspace = $2
    order by t.id
    for no key update of t
),
resumed as (
    update grns.tasks t
    set status = case when l.target is null then 'queued' else 'waiting' end, waits_for = l.target,
        next_attempt_at = case l.target when 'time' then l.due_at when 'tasks' then l.until end,
        queued_at = case when l.target is null then statement_timestamp() end,
        queued_reason = case when l.target is null then 'resumed' else t.queued_reason end,
        updated_at = statement_timestamp(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id and l.waited_for = 'pause'
    returning t.*, l.event_id, l.led_here
),
forgotten as (
    delete from grns.task_pauses p where p.task_id = any(array(select r.id from resumed r))
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id, was,
        actor, payload)
    select r.version, r.event_id, r.workspace, r.id, 'evt.task.' || r.status, r.attempt,
        case r.status when 'queued' then grns.command_route(r.agent_type, r.priority, r.route) end, r.trace_id, r.led_here, 'w',
        $3::text,
        json_strip_nulls(json_build_object('task_id', r.id, 'task_type', r.task_type, 'agent_type', r.agent_type,
            'priority', r.priority, 'reason', 'resumed', 'actor', $3::text, 'why', $4::text,
            'waits_for', r.waits_for, 'next_attempt_at', r.next_attempt_at))
    from resumed r
)
select r.id, 'resumed' as answer, case r.status when 'queued' then r.agent_type end as agent_type from resumed r
union all
select l.id, l.was, null from locked l where l.waited_for is distinct from 'pause'
