-- Returns how many tasks there are, as far as the log is counted. $1 workspace, $2 states, $3 task types (null: all)
select coalesce(sum(c.count), 0)::bigint as number
from grns.task_counts c
where c.workspace = $1 and c.status = any($2::text[]) and ($3::text[] is null or c.task_type = any($3::text[]))
