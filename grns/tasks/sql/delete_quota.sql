-- Lets any number of tasks of a pool be queued. $1 workspace, $2 agent_type
delete from grns.pool_quotas q where q.workspace = $1 and q.agent_type = $2
returning q.workspace, q.agent_type, q.max_queued, q.full_since, q.updated_at, q.updated_by
