-- Says of all pools how many workers live, and what they said of themselves when they registered.
select a.workspace, a.agent_type, count(*) filter (where h.is_alive) as workers,
    coalesce(sum(a.concurrency) filter (where h.is_alive), 0) as slots,
    count(*) filter (where not h.is_alive) as silent,
    min(a.lease_seconds) filter (where h.is_alive) as shortest_lease_seconds,
    max(a.lease_seconds) filter (where h.is_alive) as longest_lease_seconds,
    -- HTTP workers have no process id: what they say is the version of their own code.
    coalesce(array_agg(distinct a.version) filter (where h.is_alive and a.pid <> 0), '{}') as versions
from grns.workers a
cross join lateral (
    select a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second' as is_alive
) as h
where a.stopped_at is null
group by a.workspace, a.agent_type
order by a.workspace, a.agent_type
