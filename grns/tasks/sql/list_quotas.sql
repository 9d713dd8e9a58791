-- Lists how many tasks of pools may be queued. $1 workspace, $2 agent types or null
select q.workspace, q.agent_type, q.max_queued, q.full_since, q.updated_at, q.updated_by
from grns.pool_quotas q
where q.workspace = $1 and ($2::text[] is null or q.agent_type = any($2::text[]))
order by q.agent_type
