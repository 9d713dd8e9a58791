-- Takes the lease from attempts of agents that were told to stop and have not, also where a new life has begun since: reap.sql puts
-- their tasks back. For a day: what was silent for so long holds no lease. The attempts do not count.
-- $1 after how many seconds, $2 how many at most
with stopping as (
    select w.agent_id
    from (
        select g.workspace, g.name, g.agent_id, g.ordered_at from grns.agents g where g.ordered = 'stop'
        union all
        select e.workspace, e.name, e.agent_id, e.ordered_at from grns.earlier_lives e where e.ordered = 'stop'
    ) as l
    join grns.workers w on w.agent_id = l.agent_id and w.workspace = l.workspace and w.agent = l.name
    where l.ordered_at < now() - $1::double precision * interval '1 second' and l.ordered_at > now() - interval '1 day'
),
locked as (
    select t.id, t.ctid as place
    from grns.tasks t
    where t.lease_until > now() and t.status = 'running' and t.owner_agent_id in (select s.agent_id from stopping s)
        and (select count(*) > 0 from stopping)  -- else no task is read
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
