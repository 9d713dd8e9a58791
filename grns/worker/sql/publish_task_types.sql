-- Publishes the task types of a pool, and no others of it. $1 workspace, $2 agent type, $3 task types, $4 descriptions, $5 schemas
with gone as (
    delete from grns.task_types k where k.workspace = $1 and k.agent_type = $2 and k.task_type <> all($3::text[])
)
insert into grns.task_types as k (workspace, agent_type, task_type, description, payload_schema)
select $1, $2, n.task_type, n.description, n.payload_schema::json
from unnest($3::text[], $4::text[], $5::text[]) as n (task_type, description, payload_schema)
order by n.task_type
on conflict (workspace, agent_type, task_type) do update
set description = excluded.description, payload_schema = excluded.payload_schema, published_at = now()
