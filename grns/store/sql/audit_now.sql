-- Finds what should have gone on by now. Each branch reads one index of few rows.
-- $1 patience in seconds, $2 how many findings of a kind at most
with late as (
    select now() - $1::double precision * interval '1 second' as since
),
alive as (
    select a.workspace, a.agent_type, a.task_types, a.agent_id, a.concurrency
    from grns.agents a
    where a.stopped_at is null and a.last_seen_at > now() - interval '1 minute'
),
busy as (
    select t.owner_agent_id as agent_id, count(*) as running
    from grns.tasks t
    where t.lease_until is not null
    group by t.owner_agent_id
),
-- Who has had room for more: a queue behind workers that are all busy is long, not stuck.
idle as (
    select a.workspace, a.agent_type, unnest(a.task_types) as task_type
    from alive a
    left join busy b on b.agent_id = a.agent_id
    where coalesce(b.running, 0) < a.concurrency
)
(select t.id as task_id, 'undelivered' as invariant,
    'queued since ' || t.queued_at || ', while workers of ' || t.agent_type || ' have room' as detail
from grns.tasks t, late l
where t.queued_at < l.since
    and exists (select from idle i where i.workspace = t.workspace and i.agent_type = t.agent_type and i.task_type = t.task_type)
order by t.queued_at
limit $2)
union all
(select t.id, 'unreaped', 'its lease is over since ' || t.lease_until || ', and no reaper took it back'
from grns.tasks t, late l
where t.lease_until < l.since
order by t.lease_until
limit $2)
union all
(select t.id, 'unpromoted', 'due since ' || t.next_attempt_at || ', and no retry scheduler queued it'
from grns.tasks t, late l
where t.next_attempt_at < l.since
order by t.next_attempt_at
limit $2)
union all
(select e.task_id, 'unrelayed', e.kind || ' has the number ' || e.seq || ' and is not published since ' || e.created_at
from grns.events e, grns.relay_cursor c, late l
where e.seq > c.low and not c.published @> e.seq and e.created_at < l.since
order by e.seq
limit $2)
