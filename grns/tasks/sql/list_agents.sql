-- Lists agents by name. $1 workspace, $2 only of this name, $3 of this agent type, $4 of this health, $5 with this capability (each
-- null: any), $6 name to go on behind, $7 how many at most
select g.name, g.agent_type, g.title, g.model, g.capabilities, g.max_concurrent_tasks, g.heartbeat_interval_seconds,
    g.stale_threshold_seconds, g.metadata::text as metadata, g.agent_url, g.coordinator_enabled, g.session_key, g.created_at, grns.agent_health(g, now()) as health,
    case when g.is_blocked then 'blocked' when g.running > 0 or g.current_task_id is not null then 'working' else 'idle' end as status,
    g.agent_id, g.started_at, g.last_seen_at,
    case when g.stopped_at is null then g.last_seen_at + g.heartbeat_interval_seconds * interval '1 second' end as next_expected_at,
    g.running, g.current_task_id, g.progress_percent, g.current_step, g.memory_mb, g.cpu_percent,
    g.ordered as "order", g.ordered_at, g.ordered_by, g.order_reason
from grns.agents g
where g.workspace = $1 and ($2::text is null or g.name = $2) and ($3::text is null or g.agent_type = $3)
    and ($4::text is null or grns.agent_health(g, now()) = $4) and ($5::text is null or $5 = any(g.capabilities))
    and g.name > $6
order by g.name
limit $7
