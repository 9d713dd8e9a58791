-- Pauses a pool, or one task type of it; where it is paused already, for another reason or time from now on.
-- Without a row nothing was paused: the time is past.
-- $1 workspace, $2 agent_type, $3 task_type ('' is all of the pool), $4 who asks for it, $5 reason, $6 until then or,
-- where null, $7 for so many seconds; both null: until it is resumed
insert into grns.pauses as p (workspace, agent_type, task_type, paused_by, reason, until)
select $1, $2, $3, $4, $5, u.until
from (select coalesce($6, now() + $7::double precision * interval '1 second') as until) as u
where u.until is null or u.until > now()
on conflict (workspace, agent_type, task_type) do update
set paused_at = case when p.until <= now() then now() else p.paused_at end, paused_by = excluded.paused_by,
    reason = excluded.reason, until = excluded.until, budget = null
returning p.workspace, p.agent_type, nullif(p.task_type, '') as task_type, p.paused_at, p.paused_by, p.reason, p.until, p.budget,
    extract(epoch from p.until - now())::double precision as left_seconds
