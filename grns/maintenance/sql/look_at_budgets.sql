-- Notes what was used of budgets in their periods, and which are used up; pauses the pools that have used of one that asks and is
-- used up, and ends the pauses of others. A pool that a person has paused stays as it is.
-- Answers with budgets that have come to be used up, and with pauses that have begun and ended. Where none is due, nothing is done:
-- each is looked at every two seconds, and at once after a change. One scheduler at a time runs this (has_budgets.sql).
with due as materialized (
    select from grns.budgets b where b.looked_at is null or b.looked_at < now() - interval '2 seconds' limit 1
),
held as materialized (
    select b.*, p.present, b.begins_on is not distinct from p.present as is_same
    from grns.budgets b
    cross join lateral (select grns.period_begin(b.period) as present) as p
    where exists (select from due)
    order by b.workspace, b.name
    for no key update of b
),
-- One sum for each workspace, pool and day.
used as materialized (
    select d.workspace, d.agent_type, d.day, sum(d.cost) as cost, sum((d.input_tokens + d.output_tokens)::numeric) as tokens
    from (select h.workspace, min(h.present) as since from held h group by h.workspace) as w
    join grns.usage_days d on d.workspace = w.workspace and d.day >= w.since
    group by 1, 2, 3
    union all
    select u.workspace, u.agent_type, (u.at at time zone 'UTC')::date, sum(u.cost), sum((u.input_tokens + u.output_tokens)::numeric)
    from grns.usage u
    where not u.is_summed and exists (select from due)
    group by 1, 2, 3
),
seen as materialized (
    select h.workspace, h.name, coalesce(sum(u.cost), 0) as cost, coalesce(sum(u.tokens), 0)::bigint as tokens,
        -- pools that have used of what it bounds
        array_agg(distinct u.agent_type) filter (
            where (h.max_cost is not null and u.cost > 0) or (h.max_tokens is not null and u.tokens > 0)) as pools
    from held h
    left join used u on u.workspace = h.workspace and u.day >= h.present and h.agent_type in ('', u.agent_type)
    group by h.workspace, h.name
),
judged as materialized (
    select h.*, s.cost, s.tokens, s.pools, e.cost as more_cost, e.tokens as more_tokens,
        coalesce(s.cost >= h.max_cost + e.cost, false) or coalesce(s.tokens >= h.max_tokens + e.tokens, false) as is_over
    from held h
    join seen s on s.workspace = h.workspace and s.name = h.name
    cross join lateral (
        select case when h.is_same then h.extra_cost else 0 end as cost, case when h.is_same then h.extra_tokens else 0 end as tokens
    ) as e
),
noted as (
    update grns.budgets b
    set begins_on = j.present, used_cost = j.cost, used_tokens = j.tokens, extra_cost = j.more_cost, extra_tokens = j.more_tokens,
        exceeded_since = case when j.is_over then coalesce(case when j.is_same then j.exceeded_since end, now()) end,
        looked_at = now()
    from judged j
    where b.workspace = j.workspace and b.name = j.name
),
over as materialized (
    select distinct on (j.workspace, p.agent_type) j.workspace, p.agent_type, j.name
    from judged j
    cross join lateral unnest(j.pools) as p (agent_type)
    where j.is_over and j.action = 'ask'
    order by j.workspace, p.agent_type, j.name
),
begun as (
    insert into grns.pauses as p (workspace, agent_type, task_type, paused_by, reason, budget)
    select o.workspace, o.agent_type, '', 'grns', 'the budget ' || o.name || ' is used up', o.name
    from over o
    order by o.workspace, o.agent_type
    on conflict (workspace, agent_type, task_type) do update
    set paused_at = now(), paused_by = excluded.paused_by, reason = excluded.reason, until = null, budget = excluded.budget
    where p.until <= now()  -- it is over, and no claim looks at it any more
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
    where p.budget is not null
        and (exists (select from due) or not exists (select from grns.budgets b where b.workspace = p.workspace))
        and not exists (select from over o where o.workspace = p.workspace and o.agent_type = p.agent_type)
    returning p.*
)
select 'exceeded' as what, j.workspace, nullif(j.agent_type, '') as agent_type, j.name as budget, j.period, j.action,
    j.present as begins_on, j.cost::double precision as used_cost, (j.max_cost + j.more_cost)::double precision as max_cost,
    j.tokens as used_tokens, j.max_tokens + j.more_tokens as max_tokens, null::timestamptz as paused_at, null as reason
from judged j
where j.is_over and not (j.is_same and j.exceeded_since is not null)
union all
select 'begun', b.workspace, b.agent_type, b.budget, null, null, null, null, null, null, null, b.paused_at, b.reason from begun b
union all
select 'ended', e.workspace, e.agent_type, e.budget, null, null, null, null, null, null, null, e.paused_at, e.reason from ended e
order by 2, 1 desc, 3, 4
