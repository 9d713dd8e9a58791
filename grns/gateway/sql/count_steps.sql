-- Counts the steps of a task, and the bytes of their values, without one that is recorded again. $1 id, $2 workspace, $3 name
select count(*) as steps, coalesce(sum(octet_length(s.value::text)), 0)::bigint as bytes
from grns.steps s
where s.task_id = $1 and s.workspace = $2 and s.name <> $3
