-- Replaces the follow-ups of a pool; what else is known of its task types stays. $1 workspace, $2 agent type, $3 the types that have
-- some, $4 those of each
with gone as (
    update grns.task_types k set follow_ups = '[]'
    where k.workspace = $1 and k.agent_type = $2 and k.follow_ups <> '[]' and k.task_type <> all($3::text[])
)
insert into grns.task_types as k (workspace, agent_type, task_type, payload_schema, is_published, follow_ups)
select $1, $2, n.task_type, '{}', false, n.follow_ups::jsonb
from unnest($3::text[], $4::text[]) as n (task_type, follow_ups)
order by n.task_type
on conflict (workspace, agent_type, task_type) do update set follow_ups = excluded.follow_ups
