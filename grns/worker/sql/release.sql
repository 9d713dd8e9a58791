-- Gives attempts back: the task is queued again and the attempt does not count. An attempt whose handler has begun is
-- forgiven at most as often as the task may be attempted, unless it has recorded a step; beyond that it is spent.
-- $1 ids, $2 attempts, $3 lease_ids, $4 event ids, $5 reason, $6 workspaces, $7 have their handlers begun?
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::uuid[], $6::text[])
        as w (id, attempt, lease_id, event_id, workspace)
),
locked as (
    select t.id, w.event_id, t.owner_agent_id as agent_id, t.last_message_id as led_here,
        s.is_spared, t.released < t.attempt_limit or not $7::boolean or s.is_spared as is_forgiven,
        case
            when t.cancel_requested_at is not null then 'cancelled'
            when t.released < t.attempt_limit or not $7::boolean or s.is_spared
                or t.attempt - t.uncounted_attempts < t.attempt_limit then 'queued'
            else 'dead'
        end as target
    from wanted w
    join grns.tasks t on t.id = w.id
    cross join lateral (select grns.has_recorded(t.id, t.attempt) as is_spared) as s
    where t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
        and t.status = 'running'
    order by t.id
    for no key update of t skip locked
),
given_back as (
    update grns.tasks t
    set status = l.target, owner_agent_id = null, lease_id = null, lease_until = null, next_attempt_at = null,
        queued_at = case l.target when 'queued' then now() end,
        queued_reason = case l.target when 'queued' then 'released' else t.queued_reason end,
        uncounted_attempts = t.uncounted_attempts + case when l.target = 'queued' and l.is_forgiven then 1 else 0 end,
        released = t.released + case when l.target = 'queued' and l.is_forgiven and $7::boolean and not l.is_spared then 1 else 0 end,
        last_error = case l.target
            when 'dead' then '{"class": "released", "message": "given back at shutdown too often"}'::jsonb
            else t.last_error end,
        last_traceback = case when l.target <> 'dead' then t.last_traceback end,
        fingerprint = case l.target when 'dead' then grns.fingerprint(t.task_type, 'released') else t.fingerprint end,
        finished_at = case l.target when 'queued' then null else now() end,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id
    returning t.*, l.event_id, l.agent_id, l.led_here
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
        was, actor, payload)
    select g.version, g.event_id, g.workspace, g.id,
        case g.status when 'queued' then 'evt.task.released' else 'evt.task.' || g.status end,
        g.attempt, case g.status when 'queued' then grns.command_route(g.agent_type, g.priority, g.route) end, g.trace_id, g.led_here, 'r'::"char",
        case g.status when 'cancelled' then g.cancel_actor end,
        case g.status
            when 'queued' then json_build_object('task_id', g.id, 'agent_id', g.agent_id, 'attempt', g.attempt,
                'reason', $5::text)
            when 'dead' then json_build_object('task_id', g.id, 'task_type', g.task_type,
                'agent_type', g.agent_type, 'agent_id', g.agent_id, 'attempt', g.attempt,
                'max_attempts', g.attempt_limit, 'error', g.last_error, 'error_class', 'released',
                'fingerprint', g.fingerprint)
            else json_build_object('task_id', g.id, 'task_type', g.task_type,
                'agent_type', g.agent_type, 'agent_id', g.agent_id, 'attempt', g.attempt,
                'reason', g.cancel_reason, 'actor', g.cancel_actor)
        end
    from given_back g
    union all
    select g.version, gen_random_uuid(), g.workspace, g.id, 'dlq.task.dead', g.attempt, null, g.trace_id, g.event_id,
        null, null,
        json_build_object('task_id', g.id, 'agent_id', g.agent_id, 'attempt', g.attempt,
            'max_attempts', g.attempt_limit, 'error', g.last_error, 'error_class', 'released',
            'task_type', g.task_type, 'agent_type', g.agent_type, 'payload', g.payload, 'fingerprint', g.fingerprint)
    from given_back g
    where g.status = 'dead'
)
select g.event_id, g.status as verdict
from given_back g
union all
-- `not in` looks each up in a hash; a join of the two would compare each with each.
select w.event_id, case when t.id is not null then 'locked' else 'lost' end
from wanted w
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id
    and t.workspace = w.workspace and t.status = 'running'
where w.event_id not in (select g.event_id from given_back g)
