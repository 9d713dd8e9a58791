-- Ends pauses whose time is over, each once. $1 how many at most
with ended as (
    select p.workspace, p.agent_type, p.task_type
    from grns.pauses p
    where p.until <= now()
    order by p.until
    limit $1
    for update skip locked
)
delete from grns.pauses p
using ended e
where p.workspace = e.workspace and p.agent_type = e.agent_type and p.task_type = e.task_type
returning p.workspace, p.agent_type, nullif(p.task_type, '') as task_type, p.paused_at, p.paused_by, p.reason, p.until, p.budget,
    extract(epoch from p.until - now())::double precision as left_seconds
