-- Notes which pools have as many queued tasks as they may have, and which have fewer again.
update grns.pool_quotas q
set full_since = case when c.is_full then now() end
from (
    select p.workspace, p.agent_type, n.count >= p.max_queued as is_full
    from grns.pool_quotas p
    cross join lateral (
        select count(*) from (
            select from grns.tasks t
            where t.workspace = p.workspace and t.agent_type = p.agent_type and t.queued_at is not null
            limit p.max_queued
        ) as f
    ) as n
) as c
where q.workspace = c.workspace and q.agent_type = c.agent_type and (q.full_since is not null) <> c.is_full
