-- Reads which pools are paused, all of them, whatever their workspace.
-- $1 workspace and $2 agent_type of the one behind which to go on, $3 how many at most
select p.workspace, p.agent_type, null as task_type, p.paused_at, p.paused_by, p.reason, p.until, p.budget,
    extract(epoch from p.until - now())::double precision as left_seconds
from grns.pauses p
where (p.workspace, p.agent_type) > ($1, $2) and p.task_type = '' and (p.until is null or p.until > now())
order by p.workspace, p.agent_type
limit $3
