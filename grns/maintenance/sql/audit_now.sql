-- Finds what should have gone on by now. Each branch reads one index of few rows.
-- $1 patience in seconds, $2 how many findings of a kind at most, $3 how long a worker is idle that may not be, in
-- seconds: where the patience is shorter, that
with late as (
    select now() - $1::double precision * interval '1 second' as since,
        least($1::double precision, $3::double precision) * interval '1 second' as idle_for
),
busy as (
    select t.owner_agent_id as agent_id, count(*) as running
    from grns.tasks t
    where t.lease_until is not null
    group by t.owner_agent_id
),
-- Who has had room for a while and took nothing, as its last heartbeat said: a queue behind workers that are
-- all busy is long, not stuck, and between two of its tasks even a busy one has room. What was queued before
-- that while began is what they should have taken.
idle as (
    select a.workspace, a.agent_type, a.task_types, least(max(a.last_seen_at - l.idle_for), l.since) as since
    from grns.workers a
    cross join late l
    left join busy b on b.agent_id = a.agent_id
    where a.stopped_at is null and a.last_seen_at > now() - interval '1 minute'
        and a.worked_at <= a.last_seen_at - l.idle_for and coalesce(b.running, 0) < a.concurrency
    group by a.workspace, a.agent_type, a.task_types, l.since
),
-- What is paused waits, and is not stuck.
serving as (
    select i.workspace, i.agent_type, i.since, r.task_types
    from idle i
    cross join lateral (
        select array_agg(h.task_type) as task_types
        from unnest(i.task_types) as h (task_type)
        where not exists (
            select from grns.pauses p
            where p.workspace = i.workspace and p.agent_type = i.agent_type and p.task_type in ('', h.task_type)
                and (p.until is null or p.until > now())
        )
    ) as r
    where r.task_types is not null
)
-- By priority subject, in the order of the index that claims use: where no worker is idle, no queue is read.
(select distinct on (o.queued_at, o.id) o.id as task_id, 'undelivered' as invariant,
    'queued since ' || o.queued_at || ', while workers of ' || i.agent_type || ' have room and take nothing' as detail
from serving i
cross join generate_series(0, 3) as p (priority)
cross join lateral (
    select t.id, t.queued_at from grns.tasks t
    where t.workspace = i.workspace and t.agent_type = i.agent_type and t.priority = p.priority
        and t.queued_at is not null and t.queued_at < i.since and t.route = '' and t.task_type = any(i.task_types)
    order by t.queued_at
    limit $2
) as o
order by o.queued_at, o.id
limit $2)
union all
(select t.id, 'unreaped', 'its lease expired at ' || t.lease_until || ', and no reaper put it back'
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
-- The oldest of those that wait: `grns admin verify` looks at each.
(select t.id, 'unfollowed', 'it waits for tasks, and ' || case
        when w.task_id is null then 'nothing says for which'
        when w.met >= w.required and not grns.is_paused(w.workflow_id) then 'as many as it needs have ended'
        when w.met + w.open < w.required then 'too few are left that can end as they should'
        else 'one of them has ended unseen'
    end
from late l
cross join lateral (
    select o.id, o.updated_at from grns.tasks o where o.waits_for = 'tasks' order by o.id limit 1000
) as t
left join grns.waits w on w.task_id = t.id
where t.updated_at < l.since
    and (w.task_id is null or w.met + w.open < w.required
        or (w.met >= w.required and not grns.is_paused(w.workflow_id)) or exists (
        select from grns.needs e
        left join grns.tasks n on n.id = e.needs
        left join grns.workflows k on k.id = e.needs
        where e.task_id = t.id and e.ended_as is null
            and (coalesce(n.finished_at, k.ended_at) < l.since or (n.id is null and k.id is null))))
order by t.id
limit $2)
union all
(select t.id, 'unadmitted', 'it waits for room in ' || array_to_string(t.limits, ', ') || ', and no admitter works since ' || a.until
from late l
join grns.leases a on a.name = 'admitter' and a.until < l.since
cross join lateral (
    select o.id, o.limits, o.updated_at from grns.tasks o where o.waits_for = 'limit' order by o.workspace, o.limits limit $2
) as t
where t.updated_at < l.since)
union all
(select min(t.id), 'over_limit', k.key || ' has ' || count(*) || ' tasks queued or running, and may have '
    || coalesce(o.max_tasks, l.max_tasks)
from grns.tasks t
cross join lateral unnest(t.limits) as k (key)
join grns.limits l on l.workspace = t.workspace and l.name = split_part(k.key, ':', 1)
left join grns.limit_keys o on o.workspace = l.workspace and o.name = l.name and o.key = substr(k.key, length(l.name) + 2)
where t.limits is not null and (t.queued_at is not null or t.lease_until is not null)
    and t.created_at > greatest(l.updated_at, o.updated_at) + interval '1 minute'  -- others were admitted by what was allowed before
group by t.workspace, k.key, l.max_tasks, o.max_tasks
having count(*) > coalesce(o.max_tasks, l.max_tasks)
limit $2)
union all
-- While a stranger's transaction keeps a number missing, most of the log beyond it is published: only what lies
-- between is read, and of that no more than is told of. Numbers and times have one order, but for a blink.
(select e.task_id, 'unrelayed', e.kind || ' has the number ' || e.seq || ' and is not published since ' || e.created_at
from grns.relay_cursor c
cross join late l
cross join lateral unnest(int8multirange(int8range(c.low, null, '()')) - c.published) as s (span)
cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
    select e.seq, e.task_id, e.kind, e.created_at
    from grns.events e
    where e.seq >= lower(s.span) and e.seq < coalesce(upper(s.span), 9223372036854775807)
    order by e.seq
    limit $2
) as e
where e.created_at < l.since
order by e.seq
limit $2)
