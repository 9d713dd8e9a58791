-- Reads what a story of a task is told from: the latest rows of the log about it up to one of its versions, the latest
-- first, without what tasks carry. $1 id, $2 workspace, $3 version, null for all, $4 rows at most
select e.seq, e.version, e.kind, e.attempt, e.actor, e.created_at, e.route is not null as has_command,
    json_strip_nulls(json_build_object(
        'task_type', e.payload -> 'task_type', 'agent_type', e.payload -> 'agent_type',
        'priority', e.payload -> 'priority', 'reason', e.payload -> 'reason', 'waits_for', e.payload -> 'waits_for',
        'target_agent_type', e.payload -> 'target_agent_type', 'agent_id', e.payload -> 'agent_id',
        'queued_ms', e.payload -> 'queued_ms', 'duration_ms', e.payload -> 'duration_ms',
        'next_attempt_at', e.payload -> 'next_attempt_at', 'fields', e.payload -> 'fields',
        'error_class', e.payload -> 'error_class', 'step', e.payload -> 'step', 'name', e.payload -> 'name', 'why', left(e.payload ->> 'why', 500),
        'error', json_build_object('class', left(e.payload #>> '{error,class}', 500),
            'message', left(e.payload #>> '{error,message}', 500))
    ))::text as payload
from grns.events e
where e.task_id = $1 and e.workspace = $2 and ($3::integer is null or e.version <= $3)
order by e.seq desc
limit $4
