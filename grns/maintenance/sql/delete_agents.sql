-- Forgets workers that have not been seen for long, one page; agents over HTTP (pid 0) sooner, but not within their lease.
-- $1 retention in seconds, $2 that of agents over HTTP, $3 rows
with doomed as (
    select a.agent_id
    from grns.agents a
    where a.last_seen_at < now() - $1::double precision * interval '1 second'
        or (a.pid = 0 and a.last_seen_at < now() - greatest(a.lease_seconds, $2::double precision) * interval '1 second')
    limit $3
    for update skip locked
)
delete from grns.agents a
using doomed d
where a.agent_id = d.agent_id
returning a.agent_id
