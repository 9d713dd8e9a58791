-- Pauses the pools that have used of a budget that asks and is used up, and ends the pauses of those that are not any more.
-- A pool that somebody has paused stays as it is. Answers with the pauses that were begun and ended.
with over as materialized (
    select distinct on (b.workspace, p.agent_type) b.workspace, p.agent_type, b.name
    from grns.budgets b
    cross join lateral (
        select b.agent_type where b.agent_type <> ''
        union
        select d.agent_type from grns.usage_days d
        where b.agent_type = '' and d.workspace = b.workspace and d.day >= b.begins_on
        union
        select u.agent_type from grns.usage u
        where b.agent_type = '' and not u.is_summed and u.workspace = b.workspace
            and (u.at at time zone 'UTC')::date >= b.begins_on
    ) as p
    where b.action = 'ask' and b.exceeded_since is not null and b.begins_on = grns.period_begin(b.period)
    order by b.workspace, p.agent_type, b.name
),
begun as (
    insert into grns.pauses as p (workspace, agent_type, task_type, paused_by, reason, budget)
    select o.workspace, o.agent_type, '', 'grns', 'the budget ' || o.name || ' is used up', o.name
    from over o
    order by o.workspace, o.agent_type
    on conflict do nothing
    returning p.*
),
named as (  -- the budget that it was paused for is not used up any more, but another one is
    update grns.pauses p
    set budget = o.name, reason = 'the budget ' || o.name || ' is used up'
    from over o
    where p.workspace = o.workspace and p.agent_type = o.agent_type and p.task_type = '' and p.budget <> o.name
),
ended as (
    delete from grns.pauses p
    where p.budget is not null and not exists (
        select from over o where o.workspace = p.workspace and o.agent_type = p.agent_type)
    returning p.*
)
select true as is_begun, b.workspace, b.agent_type, nullif(b.task_type, '') as task_type, b.paused_at, b.paused_by, b.reason,
    b.until, b.budget, null::double precision as left_seconds
from begun b
union all
select false, e.workspace, e.agent_type, nullif(e.task_type, ''), e.paused_at, e.paused_by, e.reason, e.until, e.budget, null
from ended e
order by 2, 3
