-- Lists the follow-ups of a pool. $1 workspace, $2 agent type
select k.task_type as follows, f.one ->> 'outcome' as outcome, f.one ->> 'task_type' as task_type, f.one ->> 'agent_type' as agent_type,
    (f.one -> 'payload')::text as payload, (f.one ->> 'priority')::integer as priority,
    (f.one ->> 'max_attempts')::integer as max_attempts
from grns.task_types k
cross join lateral jsonb_array_elements(k.follow_ups) with ordinality as f (one, place)
where k.workspace = $1 and k.agent_type = $2 and k.follow_ups <> '[]'
order by k.task_type, f.place
