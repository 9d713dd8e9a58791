-- Registers an agent, or changes it; its lives and orders stay. No row: the workspace has too many agents.
-- $1 workspace, $2 name, $3 agent type, $4 title, $5 model, $6 capabilities, $7 concurrent tasks at most, $8 seconds between two
-- heartbeats, $9 seconds after which it is stale, $10 metadata, $11 agents of a workspace at most, $12 its URL, $13 whether
-- sessions are begun for it, $14 agents of a workspace that are woken at most
insert into grns.agents as g (workspace, name, agent_type, title, model, capabilities, max_concurrent_tasks,
    heartbeat_interval_seconds, stale_threshold_seconds, metadata, agent_url, coordinator_enabled)
select $1, $2, $3, $4, $5, $6::text[], $7, $8, $9, $10::text::json, $12::text, $13::boolean
where (exists (select from grns.agents o where o.workspace = $1 and o.name = $2)
        or (select count(*) from grns.agents o where o.workspace = $1) < $11::integer)
    and (($12::text is null and not $13::boolean) or (
        select count(*) from grns.agents o
        where o.workspace = $1 and o.name <> $2 and (o.agent_url is not null or o.coordinator_enabled)) < $14::integer)
on conflict (workspace, name) do update
set agent_type = excluded.agent_type, title = excluded.title, model = excluded.model, capabilities = excluded.capabilities,
    max_concurrent_tasks = excluded.max_concurrent_tasks, heartbeat_interval_seconds = excluded.heartbeat_interval_seconds,
    stale_threshold_seconds = excluded.stale_threshold_seconds, metadata = excluded.metadata, agent_url = excluded.agent_url,
    coordinator_enabled = excluded.coordinator_enabled, updated_at = now(),
    nudged_at = case when (g.agent_url, g.coordinator_enabled) is not distinct from (excluded.agent_url, excluded.coordinator_enabled) then g.nudged_at end, nudge_failures = case when (g.agent_url, g.coordinator_enabled) is not distinct from (excluded.agent_url, excluded.coordinator_enabled) then g.nudge_failures else 0 end
returning g.xmax = 0 as created
