-- Reads limits by name, each with the pools that fall under it. $1 workspace, $2 one of this name, or null, $3 behind this
-- name, $4 rows at most
select l.workspace, l.name, l.max_tasks, l.rate_count, l.rate_seconds, l.burst, l.paused_at, l.paused_by, l.pause_reason,
    l.created_at, l.updated_at, l.updated_by, l.version,
    (
        select json_agg(json_build_object('agent_type', p.agent_type, 'task_types', p.task_types,
            'key', array_to_string(p.key_path, '.')) order by p.agent_type)
        from grns.limited_pools p
        where p.workspace = l.workspace and p.name = l.name
    )::text as pools
from grns.limits l
where l.workspace = $1 and ($2::text is null or l.name = $2) and l.name > $3
order by l.name
limit $4
