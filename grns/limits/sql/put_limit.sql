-- Creates a limit, or replaces it, and sets which tasks of a pool fall under it; without a row nothing is different.
-- $1 workspace, $2 name, $3 tasks at once, $4 how many may begin in $5 seconds, $6 and how many of them at once,
-- $7 agent type, $8 task types, $9 place of the key in the payload, $10 who asks
with made as (
    insert into grns.limits as l (workspace, name, max_tasks, rate_count, rate_seconds, burst, updated_by)
    values ($1, $2, $3, $4, $5, $6, $10)
    on conflict (workspace, name) do update
    set max_tasks = excluded.max_tasks, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
        burst = excluded.burst, updated_at = now(), updated_by = excluded.updated_by, version = l.version + 1
    where (l.max_tasks, l.rate_count, l.rate_seconds, l.burst)
        is distinct from (excluded.max_tasks, excluded.rate_count, excluded.rate_seconds, excluded.burst)
    returning l.version = 1 as is_new
),
joined as (
    insert into grns.limited_pools as p (workspace, agent_type, name, task_types, key_path)
    values ($1, $7, $2, $8, $9)
    on conflict (workspace, agent_type, name) do update
    set task_types = excluded.task_types, key_path = excluded.key_path
    where (p.task_types, p.key_path) is distinct from (excluded.task_types, excluded.key_path)
    returning false as is_new
)
select bool_or(c.is_new) as is_new
from (select m.is_new from made m union all select j.is_new from joined j) as c
having count(*) > 0
