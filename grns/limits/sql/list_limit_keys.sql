-- Counts the tasks of each key of a limit; with `max_tasks` and `weight` of keys that have numbers of their own.
-- $1 workspace, $2 name, $3 keys at most
select n.*, r.max_tasks, r.weight
from (
select substr(k.key, length($2) + 2) as key, count(*) filter (where o.standing = 'waiting') as waiting,
    count(*) filter (where o.standing = 'queued') as queued, count(*) filter (where o.standing = 'running') as running,
    min(o.since) filter (where o.standing = 'waiting') as waiting_since
from (
    select t.limits, t.status as standing, t.updated_at as since from grns.tasks t
    where t.limits is not null and (t.queued_at is not null or t.lease_until is not null) and t.workspace = $1
    union all
    select t.limits, 'waiting', t.updated_at from grns.tasks t where t.waits_for = 'limit' and t.workspace = $1
) as o
cross join lateral unnest(o.limits) as k (key)
where split_part(k.key, ':', 1) = $2
group by k.key
order by waiting desc, running desc, k.key
limit $3
) as n
left join grns.limit_keys r on r.workspace = $1 and r.name = $2 and r.key = n.key
order by n.waiting desc, n.running desc, n.key
