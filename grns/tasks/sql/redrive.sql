-- Opens ended tasks again, with a fresh budget of attempts; their history stays. One that falls under limits waits until it
-- is admitted.
-- $1 ids, $2 workspace, $3 who asks, $4 why
with wanted as (
    select w.id from unnest($1::text[]) as w (id)
),
locked as (
    select t.id, t.status as was, t.discarded_at is not null as was_discarded, t.last_message_id as led_here,
        gen_random_uuid() as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.workspace = $2
    order by t.id
    for no key update of t
),
redriven as (
    -- The whole shape is set, as in `cancel`: the statement's snapshot may know the task as one that runs.
    update grns.tasks t
    set status = case when t.limits is null then 'queued' else 'waiting' end, owner_agent_id = null, lease_id = null, lease_until = null,
        uncounted_attempts = t.attempt, released = 0, cancel_requested_at = null, cancel_reason = null, cancel_actor = null,
        next_attempt_at = null, waits_for = case when t.limits is not null then 'limit' end,
        queued_at = case when t.limits is null then now() end, queued_reason = 'redriven', finished_at = null,
        discarded_at = null, discarded_by = null,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id and l.was in ('dead', 'failed', 'cancelled')
    returning t.*, l.event_id, l.led_here, l.was, l.was_discarded
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        was, actor, payload)
    select r.version, r.event_id, r.workspace, r.id, 'evt.task.' || r.status, r.attempt,
        case r.status when 'queued' then grns.command_route(r.agent_type, r.priority, r.route) end, r.trace_id, r.led_here,
        left(r.was, 1)::"char", $3::text,
        json_strip_nulls(json_build_object('task_id', r.id, 'task_type', r.task_type, 'agent_type', r.agent_type,
            'priority', r.priority, 'reason', 'redriven', 'actor', $3::text, 'why', $4::text, 'waits_for', r.waits_for,
            -- of the issue that has one task less now; one that was discarded it had lost then
            'fingerprint', case when r.was in ('dead', 'failed') and not r.was_discarded then r.fingerprint end))
    from redriven r
)
select r.id, 'redriven' as answer, case r.status when 'queued' then r.agent_type end as agent_type from redriven r
union all
select l.id, l.was, null from locked l where l.was not in ('dead', 'failed', 'cancelled')
