-- Writes the tasks of one slice as their last transition has left them.
insert into grns.tasks (id, workspace, task_type, agent_type, priority, idempotency_key, trace_id, created_at, payload,
    status, version, attempt, attempt_limit, owner_agent_id, lease_id, lease_until, next_attempt_at, queued_at,
    queued_reason, started_at, finished_at, updated_at, last_message_id, last_error, fingerprint, result, result_ref,
    cancel_requested_at, cancel_reason, cancel_actor, waits_for)
select l.id, l.workspace, l.task_type, l.agent_type, l.priority, l.key, l.trace_id, l.created_at,
    jsonb_build_object('url', 'https://shop-' || l.number % 400 || '.example/products/' || l.number,
        'order', jsonb_build_object('id', l.number, 'region', (array['eu', 'us', 'apac'])[l.number % 3 + 1]),
        'customer', md5(l.number::text), 'note', repeat(md5(l.id) || ' ', 4 + l.number % 9))
        || case when l.number % 20 = 0 then jsonb_build_object('token', jsonb_build_object('$secret', '1.2026.' || md5(l.id) || '.' || md5(l.id || 'x')))
            else '{}' end,
    l.fate, v.version, l.attempts, case when l.attempts > 0 then 3 end,
    case l.fate when 'running' then l.agent_id end, case l.fate when 'running' then gen_random_uuid() end,
    case l.fate when 'running' then l.until end,
    case when l.fate in ('retry_wait', 'waiting') then l.until end,
    case l.fate when 'queued' then l.created_at end,
    case when l.fate = 'waiting' then null when l.attempts > 1 then 'retry_due' else 'new_task' end,
    a.claimed_at, v.finished_at, coalesce(case l.fate when 'running' then a.claimed_at else a.ended_at end,
        v.finished_at, l.created_at),
    filling.message_id(l.id, v.version, 'evt'),
    a.error, a.fingerprint,
    case l.fate when 'succeeded' then jsonb_build_object('rows', l.number % 1000) end,
    case l.fate when 'succeeded' then 'db://tasks/' || l.id end,
    case l.fate when 'cancelled' then v.finished_at end, case l.fate when 'cancelled' then 'not needed' end,
    case l.fate when 'cancelled' then 'cli:ann@desk' end, case l.fate when 'waiting' then 'time' end
from filling.lives l
left join filling.attempts a on a.id = l.id and a.is_last
cross join lateral (
    select case l.fate when 'running' then 3 * l.attempts - 1 when 'cancelled' then 2
            else greatest(3 * l.attempts, 1) end as version,
        case when l.fate = 'cancelled' then l.created_at + l.run_ms * interval '1 ms'
            when l.fate in ('succeeded', 'failed', 'dead') then a.ended_at end as finished_at
) as v
order by l.created_at
