-- Ends a pause, but for that of a budget. $1 workspace, $2 agent_type, $3 task_type ('' is the pause of all of the pool)
delete from grns.pauses p
where p.workspace = $1 and p.agent_type = $2 and p.task_type = $3 and p.budget is null
returning p.workspace, p.agent_type, nullif(p.task_type, '') as task_type, p.paused_at, p.paused_by, p.reason, p.until, p.budget,
    extract(epoch from p.until - now())::double precision as left_seconds
