-- Lists the workers that have not said that they ended, by agent type; whether each was heard of lately.
-- $1 workspace, $2 agent type and $3 worker to go on behind, $4 how many at most
select a.agent_id, a.agent_type, a.host, a.pid, a.version, a.concurrency, a.running, a.task_types, a.lease_seconds,
    a.started_at, a.last_seen_at, a.worked_at,
    a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second' as is_alive, a.agent
from grns.workers a
where a.workspace = $1 and a.stopped_at is null and (a.agent_type, a.agent_id) > ($2, $3)
order by a.agent_type, a.agent_id
limit $4
