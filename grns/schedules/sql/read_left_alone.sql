-- Reads which times of a schedule have had their task, or have their idempotency key taken. $1 workspace, $2 name; $3 times,
-- $4 keys
select w.due_at
from unnest($3::timestamptz[], $4::text[]) as w (due_at, key)
where exists (
        select from grns.schedule_runs r
        where r.workspace = $1 and r.name = $2 and r.due_at = w.due_at and r.outcome = 'submitted'
    )
    or exists (select from grns.tasks t where t.workspace = $1 and t.idempotency_key = w.key)
