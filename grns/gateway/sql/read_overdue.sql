-- Reads which attempts have taken longer than expected: a row for each, with its place. $1 ids, $2 attempts, $3 workspace
select a.place
from unnest($1::text[], $2::integer[]) with ordinality as a (task_id, attempt, place)
join grns.progress p on p.task_id = a.task_id
where p.workspace = $3 and p.attempt = a.attempt and p.overdue_seconds is not null
