-- Reads what all limits allow, and those of their keys that have numbers of their own, by `name:key`.
select l.workspace, l.name, l.max_tasks, l.rate_count / l.rate_seconds as per_second, l.burst,
    l.paused_at is not null as is_paused, 1.0::double precision as weight
from grns.limits l
union all
select k.workspace, k.name || ':' || k.key, coalesce(k.max_tasks, l.max_tasks), l.rate_count / l.rate_seconds, l.burst,
    l.paused_at is not null, k.weight
from grns.limit_keys k
join grns.limits l using (workspace, name)
