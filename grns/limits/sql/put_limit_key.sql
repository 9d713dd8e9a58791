-- Gives one key of a limit numbers of its own. $1 workspace, $2 name, $3 key, $4 tasks at once or null, $5 weight, $6 who asks
insert into grns.limit_keys as k (workspace, name, key, max_tasks, weight, updated_by)
values ($1, $2, $3, $4, $5, $6)
on conflict (workspace, name, key) do update
set max_tasks = excluded.max_tasks, weight = excluded.weight, updated_at = now(), updated_by = excluded.updated_by
