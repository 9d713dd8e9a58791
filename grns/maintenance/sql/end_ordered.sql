-- Takes the lease from attempts of agents that were told to stop and have not, also where a new life has begun since: reap.sql puts
-- their tasks back. The attempts do not count.
-- $1 after how many seconds, $2 how many at most
with stopping as (
    select w.agent_id
    from grns.agents g
    join grns.workers w on w.workspace = g.workspace and w.agent = g.name
    where g.ordered = 'stop' and g.ordered_at < now() - $1::double precision * interval '1 second'
        and grns.life_order(g, w.agent_id) = 'stop'
),
locked as (
    select t.id, t.ctid as place
    from grns.tasks t
    where t.lease_until > now() and t.status = 'running' and t.owner_agent_id in (select s.agent_id from stopping s)
    order by t.id
    limit $2
    for no key update of t skip locked
)
update grns.tasks t
set lease_id = gen_random_uuid(), lease_until = now(),
    uncounted_attempts = t.uncounted_attempts + (not grns.has_recorded(t.id, t.attempt))::integer  -- reap.sql forgives the others
from locked l
where t.ctid = l.place
returning t.id, t.attempt, t.owner_agent_id as agent_id, t.trace_id
