-- Publishes the task types of a pool, and no others of it. $1 workspace, $2 agent type, $3 task types, $4 descriptions, $5 schemas,
-- $6 whether clients of MCP see them, $7 the paths of their secrets, with commas between, $8 their follow-ups
with gone as (
    delete from grns.task_types k where k.workspace = $1 and k.agent_type = $2 and k.task_type <> all($3::text[])
)
insert into grns.task_types as k (workspace, agent_type, task_type, description, payload_schema, is_published, secret_paths,
    follow_ups)
select $1, $2, n.task_type, n.description, n.payload_schema::json, n.is_published, string_to_array(n.secret_paths, ','),
    n.follow_ups::jsonb
from unnest($3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[])
    as n (task_type, description, payload_schema, is_published, secret_paths, follow_ups)
order by n.task_type
on conflict (workspace, agent_type, task_type) do update
set description = excluded.description, payload_schema = excluded.payload_schema, is_published = excluded.is_published,
    secret_paths = excluded.secret_paths, follow_ups = excluded.follow_ups, published_at = now()
