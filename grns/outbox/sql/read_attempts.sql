-- Reads what the attempts of a task are told from: the latest transitions in the log, the latest first. Progress, which may
-- be told each second, is not read: the index of tasks knows it apart.
-- $1 id, $2 workspace, $3 below this number of the log, null for the latest, $4 rows at most
select e.seq, e.kind, e.attempt, e.created_at,
    json_build_object('agent_id', e.payload -> 'agent_id', 'reason', e.payload -> 'reason',
        'error_class', e.payload -> 'error_class', 'step', e.payload -> 'step')::text as payload
from grns.events e
where e.task_id = $1 and starts_with(e.kind, 'evt.task.') and e.workspace = $2 and e.seq < coalesce($3::bigint, 9223372036854775807)
order by e.seq desc
limit $4
