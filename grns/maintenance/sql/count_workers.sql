-- Says of each pool how many live workers it has, how many slots, and how many tasks these ran at their last heartbeats.
select a.workspace, a.agent_type, count(*) as workers, sum(a.concurrency) as slots, sum(a.running) as running
from grns.workers a
where a.stopped_at is null and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
group by a.workspace, a.agent_type
