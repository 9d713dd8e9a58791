-- Counts the limits under which a task of a pool may fall, of the type that falls under the most. $1 workspace, $2 agent type
select coalesce(max(n.count), 0) as count
from (
    select count(*)
    from (
        select distinct y.task_type from grns.limited_pools p cross join unnest(p.task_types) as y (task_type)
        where p.workspace = $1 and p.agent_type = $2
        union all
        select null
    ) as t
    join grns.limited_pools p on p.workspace = $1 and p.agent_type = $2
        and (p.task_types is null or t.task_type = any(p.task_types))
    group by t.task_type
) as n
