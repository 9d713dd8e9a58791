-- Writes down what was decided about times that were due, and sets the next times of their schedules.
-- $1 workspaces, $2 names, $3 times, $4 outcomes, $5 reasons, $6 tasks, $7 how many were missed;
-- $8 workspaces, $9 names, $10 next times, $11 times of the last tasks, $12 the last tasks (null: as they were)
with noted as (
    insert into grns.schedule_runs (workspace, name, due_at, outcome, reason, task_id, missed)
    select * from unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::integer[])
    on conflict do nothing
)
update grns.schedules s
set next_at = n.next_at, last_due_at = coalesce(n.last_due_at, s.last_due_at),
    last_task_id = coalesce(n.last_task_id, s.last_task_id)
from unnest($8::text[], $9::text[], $10::timestamptz[], $11::timestamptz[], $12::text[])
    as n (workspace, name, next_at, last_due_at, last_task_id)
where s.workspace = n.workspace and s.name = n.name
