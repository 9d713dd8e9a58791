-- Registers an agent, or changes it; its lives and orders stay. No row: the workspace has too many agents.
-- $1 workspace, $2 name, $3 agent type, $4 title, $5 model, $6 capabilities, $7 concurrent tasks at most, $8 seconds between two
-- heartbeats, $9 seconds after which it is stale, $10 metadata, $11 agents of a workspace at most
insert into grns.agents as g (workspace, name, agent_type, title, model, capabilities, max_concurrent_tasks,
    heartbeat_interval_seconds, stale_threshold_seconds, metadata)
select $1, $2, $3, $4, $5, $6::text[], $7, $8, $9, $10::text::json
where exists (select from grns.agents o where o.workspace = $1 and o.name = $2)
    or (select count(*) from grns.agents o where o.workspace = $1) < $11::integer
on conflict (workspace, name) do update
set agent_type = excluded.agent_type, title = excluded.title, model = excluded.model, capabilities = excluded.capabilities,
    max_concurrent_tasks = excluded.max_concurrent_tasks, heartbeat_interval_seconds = excluded.heartbeat_interval_seconds,
    stale_threshold_seconds = excluded.stale_threshold_seconds, metadata = excluded.metadata, updated_at = now()
returning g.xmax = 0 as created
