-- Makes a worker known. $1 agent_id, $2 workspace, $3 agent_type, $4 host, $5 pid, $6 version, $7 concurrency,
-- $8 task types, $9 lease in seconds
insert into grns.agents (agent_id, workspace, agent_type, host, pid, version, concurrency, task_types, lease_seconds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (agent_id) do update set last_seen_at = now(), worked_at = now(), stopped_at = null
returning agent_id
