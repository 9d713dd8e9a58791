-- Takes tasks back whose lease is over: queued again, or dead where the attempts are spent. An attempt that has recorded a step
-- does not count. One that was ended because it stalled (`end_stalled.sql`) is queued one priority higher.
-- Where the server slept since a reaper ticked, workers had no time to renew: nothing is taken then, nor during a hold.
-- $1 how many at most, $2 how far back to look, in seconds (null: everywhere)
with locked as (
    select t.id, t.owner_agent_id as agent_id, t.lease_until as was_until, t.last_message_id as led_here,
        gen_random_uuid() as event_id,
        case
            when t.cancel_requested_at is not null then 'cancelled'
            when s.is_spared or t.attempt - t.uncounted_attempts < t.attempt_limit then 'queued'
            else 'dead'
        end as target, s.is_spared, p.patience,
        case when p.patience is null then 'lease_expired' else 'stalled' end as error_class
    from grns.tasks t
    cross join lateral (select grns.has_recorded(t.id, t.attempt) as is_spared) as s
    left join lateral (  -- it was ended because it reported nothing
        select least(p.stall_seconds, p.overdue_seconds) as patience
        from grns.progress p
        where p.task_id = t.id and p.attempt = t.attempt and p.has_stalled
    ) as p on true
    where t.lease_until is not null and t.lease_until < now()
        and t.lease_until >= coalesce(now() - $2::double precision * interval '1 second', '-infinity') and t.status = 'running'
        and (select coalesce(r.hold_until <= now(), true) and coalesce(r.reap_until > now(), true)
            from grns.reaper_state r where r.id = 1)
    order by t.lease_until
    limit $1
    for no key update of t skip locked
),
reaped as (
    update grns.tasks t
    set status = l.target, owner_agent_id = null, lease_id = null, lease_until = null, next_attempt_at = null,
        queued_at = case l.target when 'queued' then now() end,
        queued_reason = case l.target when 'queued' then 'lease_expired' else t.queued_reason end,
        uncounted_attempts = t.uncounted_attempts + (l.target = 'queued' and l.is_spared)::integer,
        priority = case when l.target = 'queued' and l.error_class = 'stalled' then greatest(t.priority - 1, 0) else t.priority end,
        last_error = case l.target when 'cancelled' then t.last_error else
            jsonb_build_object('class', l.error_class, 'message', case l.error_class
                when 'stalled' then 'the worker ' || l.agent_id || ' reported nothing for ' || l.patience || ' s'
                else 'the worker ' || l.agent_id || ' did not renew its lease' end)
            end,
        last_traceback = case l.target when 'cancelled' then t.last_traceback end,
        fingerprint = case l.target when 'cancelled' then t.fingerprint else
            grns.fingerprint(t.task_type, l.error_class) end,
        finished_at = case l.target when 'queued' then null else now() end,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id
    returning t.*, l.event_id, l.agent_id, l.was_until, l.led_here, l.error_class
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        was, actor, payload)
    select r.version, r.event_id, r.workspace, r.id,
        case r.status when 'queued' then 'evt.task.lease_expired' else 'evt.task.' || r.status end,
        r.attempt, case r.status when 'queued' then grns.command_route(r.agent_type, r.priority, r.route) end, r.trace_id, r.led_here, 'r'::"char",
        case r.status when 'cancelled' then r.cancel_actor end,
        case r.status
            when 'queued' then json_build_object('task_id', r.id, 'agent_id', r.agent_id, 'attempt', r.attempt,
                'lease_until', r.was_until,
                'error_class', nullif(r.error_class, 'lease_expired'))
            when 'dead' then json_build_object('task_id', r.id, 'task_type', r.task_type,
                'agent_type', r.agent_type, 'agent_id', r.agent_id, 'attempt', r.attempt,
                'max_attempts', r.attempt_limit, 'error', r.last_error, 'error_class', r.error_class,
                'fingerprint', r.fingerprint)
            else json_build_object('task_id', r.id, 'task_type', r.task_type,
                'agent_type', r.agent_type, 'agent_id', r.agent_id, 'attempt', r.attempt,
                'reason', r.cancel_reason, 'actor', r.cancel_actor)
        end
    from reaped r
    union all
    select r.version, gen_random_uuid(), r.workspace, r.id, 'dlq.task.dead', r.attempt, null, r.trace_id, r.event_id,
        null, null,
        json_build_object('task_id', r.id, 'agent_id', r.agent_id, 'attempt', r.attempt,
            'max_attempts', r.attempt_limit, 'error', r.last_error, 'error_class', r.error_class,
            'task_type', r.task_type, 'agent_type', r.agent_type, 'payload', r.payload, 'fingerprint', r.fingerprint)
    from reaped r
    where r.status = 'dead'
)
select r.id, r.status, r.agent_id, r.attempt, r.trace_id, r.was_until from reaped r
