-- Writes down what was decided about the times of a schedule, and sets its next one. $1 workspace, $2 name; $3 times, $4 outcomes, $5 reasons, $6 tasks, $7 how many were missed; $8 next time, $9 time
-- of the last task, $10 the last task (null: as they were), $11 failures, $12 whether they count the task that was the last
-- one, $13 source
with noted as (
    insert into grns.schedule_runs (workspace, name, due_at, outcome, reason, task_id, missed, source)
    select $1, $2, n.*, $13
    from unnest($3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::integer[]) as n
    on conflict do nothing
)
update grns.schedules s
set next_at = $8, last_due_at = greatest($9, s.last_due_at), last_task_id = coalesce($10, s.last_task_id),
    failures = $11, is_counted = $12 and coalesce($10 = s.last_task_id, true)
where s.workspace = $1 and s.name = $2
