-- Lists the task types that are published, one for each name: that of the first pool. $1 workspace
select distinct on (k.task_type) k.task_type, k.agent_type, k.description, k.payload_schema::text as payload_schema, k.published_at
from grns.task_types k
where k.workspace = $1 and k.is_published
order by k.task_type, k.agent_type
limit 1000
