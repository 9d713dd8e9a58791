-- Reads which pauses of some pools are in force, of each pool that of all of it first.
-- $1 workspace, $2 agent_types, $3 how many at most
select p.workspace, p.agent_type, nullif(p.task_type, '') as task_type, p.paused_at, p.paused_by, p.reason, p.until, p.budget,
    extract(epoch from p.until - now())::double precision as left_seconds
from grns.pauses p
where p.workspace = $1 and p.agent_type = any($2::text[]) and (p.until is null or p.until > now())
order by p.agent_type, p.task_type
limit $3
