-- Lists what was decided for a schedule, the latest first. $1 workspace, $2 name, $3 before this time, or null, $4 rows at most,
-- $5 and, at this time, before this source
select r.due_at, r.outcome, r.reason, r.task_id, r.missed, r.decided_at, r.source
from grns.schedule_runs r
where r.workspace = $1 and r.name = $2 and ($3::timestamptz is null or (r.due_at, r.source) < ($3, $5))
order by r.due_at desc, r.source desc
limit $4
