-- Sets how many tasks of a pool may be queued. $1 workspace, $2 agent_type, $3 how many, $4 who asks
insert into grns.pool_quotas as q (workspace, agent_type, max_queued, updated_by)
values ($1, $2, $3, $4)
on conflict (workspace, agent_type) do update
set max_queued = excluded.max_queued, updated_at = now(), updated_by = excluded.updated_by
returning q.workspace, q.agent_type, q.max_queued, q.full_since, q.updated_at, q.updated_by
