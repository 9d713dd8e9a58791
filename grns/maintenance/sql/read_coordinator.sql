-- Reads how the daemons are that put tasks back and send them, and counts tasks and agents of all workspaces. It reads no task.
with counted as (
    select k.workspace, k.status, greatest(sum(k.count), 0)::bigint as count
    from grns.task_counts k
    group by k.workspace, k.status
),
here as (
    select g.workspace, grns.agent_health(g, now()) as health from grns.agents g
)
select coalesce(r.reap_until > now(), false) and l.until > now() as active,
    case when l.until > now() then l.owner end as instance_id,
    array(
        select w.workspace
        from (select c.workspace from counted c where c.count > 0 union select h.workspace from here h) as w
        order by w.workspace
        limit 1000
    ) as workspaces,
    r.last_tick_at as last_heartbeat, coalesce(r.hold_until > now(), false) as is_holding,
    (select coalesce(sum(c.count), 0)::bigint from counted c where c.status in ('queued', 'waiting', 'retry_wait')) as pending_tasks,
    (select coalesce(sum(c.count), 0)::bigint from counted c where c.status = 'running') as running_tasks,
    (select count(*) from here h where h.health in ('healthy', 'degraded')) as healthy_agents,
    (select count(*) from here h where h.health in ('stale', 'dead')) as stale_agents
from grns.reaper_state r
join grns.leases l on l.name = 'relay'
