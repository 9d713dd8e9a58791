-- Writes what the log says of one slice, in order of time: each transition, as its statement tells it, with its command
-- or its dead letter.
insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id, was,
    actor, payload, created_at)
select s.version, filling.message_id(l.id, s.version, s.sort), l.workspace, l.id, s.kind, s.attempt,
    case s.kind when 'evt.task.queued' then l.agent_type || '.p' || l.priority end, l.trace_id,
    case when s.sort = 'dlq' then filling.message_id(l.id, s.version, 'evt')
        when s.version > 1 then filling.message_id(l.id, s.version - 1, 'evt') end,
    s.was::"char", case s.kind when 'evt.task.cancelled' then 'cli:ann@desk' end, s.payload, s.at
from filling.lives l
cross join lateral (
    -- handed in
    select 'evt' as sort, 1 as version, l.created_at as at, 0 as attempt, null as was,
        case l.fate when 'waiting' then 'evt.task.waiting' else 'evt.task.queued' end as kind,
        case l.fate
            when 'waiting' then json_build_object('task_id', l.id, 'task_type', l.task_type, 'agent_type', l.agent_type,
                'priority', l.priority, 'next_attempt_at', l.until)
            else json_build_object('task_id', l.id, 'task_type', l.task_type, 'agent_type', l.agent_type,
                'priority', l.priority, 'reason', 'new_task')
        end as payload
    union all
    -- cancelled before anybody claimed it
    select 'evt', 2, l.created_at + l.run_ms * interval '1 ms', 0, 'q', 'evt.task.cancelled',
        json_build_object('task_id', l.id, 'agent_id', null, 'attempt', 0, 'reason', 'not needed', 'actor', 'cli:ann@desk')
    where l.fate = 'cancelled'
    union all
    select 'evt', 3 * a.attempt - 1, a.claimed_at, a.attempt, 'q', 'evt.task.claimed',
        json_build_object('task_id', l.id, 'attempt', a.attempt, 'queued_ms', l.wait_ms, 'agent_id', l.agent_id,
            'lease_until', a.claimed_at + interval '15 s')
    from filling.attempts a
    where a.id = l.id
    union all
    -- ended, for now or for good
    select 'evt', 3 * a.attempt, a.ended_at, a.attempt, 'r',
        case when not a.is_last or l.fate = 'retry_wait' then 'evt.task.retry_scheduled'
            when l.fate = 'succeeded' then 'evt.task.completed' else 'evt.task.' || l.fate end,
        case
            when not a.is_last or l.fate = 'retry_wait' then json_build_object('task_id', l.id, 'attempt', a.attempt,
                'next_attempt_at', a.due_at, 'backoff_ms', round(extract(epoch from a.due_at - a.ended_at) * 1000),
                'error_class', a.error_class, 'error', a.error)
            when l.fate = 'succeeded' then json_build_object('task_id', l.id, 'agent_id', l.agent_id,
                'attempt', a.attempt, 'result_ref', 'db://tasks/' || l.id, 'duration_ms', l.run_ms)
            when l.fate = 'failed' then json_build_object('task_id', l.id, 'agent_id', l.agent_id, 'attempt', a.attempt,
                'error', a.error, 'error_class', a.error_class, 'fingerprint', a.fingerprint)
            else json_build_object('task_id', l.id, 'agent_id', l.agent_id, 'attempt', a.attempt, 'max_attempts', 3,
                'error', a.error, 'error_class', a.error_class, 'fingerprint', a.fingerprint)
        end
    from filling.attempts a
    where a.id = l.id and not (a.is_last and l.fate = 'running')
    union all
    select 'dlq', 3 * a.attempt, a.ended_at, a.attempt, null, 'dlq.task.' || l.fate,
        json_build_object('task_id', l.id, 'agent_id', l.agent_id, 'attempt', a.attempt, 'max_attempts', 3,
            'error', a.error, 'error_class', a.error_class, 'task_type', l.task_type,
            'payload', (select t.payload from grns.tasks t where t.id = l.id), 'fingerprint', a.fingerprint)
    from filling.attempts a
    where a.id = l.id and a.is_last and l.fate in ('dead', 'failed')
    union all
    -- due again
    select 'evt', 3 * a.attempt + 1, a.due_at, a.attempt, 't', 'evt.task.queued',
        json_build_object('task_id', l.id, 'task_type', l.task_type, 'agent_type', l.agent_type,
            'priority', l.priority, 'reason', 'retry_due')
    from filling.attempts a
    where a.id = l.id and not a.is_last
) as s
order by s.at, l.id, s.version, s.sort desc
