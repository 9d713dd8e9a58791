-- Notes what was used of budgets in their periods, and which are used up. Answers with those that have come to be. One that another
-- scheduler looks at, or has within two seconds, is left to it.
with held as (
    select b.workspace, b.name, b.agent_type, b.max_cost, b.max_tokens, p.begins_on, b.begins_on = p.begins_on as is_same,
        b.extra_cost, b.extra_tokens, b.exceeded_since
    from grns.budgets b
    cross join lateral (select grns.period_begin(b.period) as begins_on) as p
    where b.looked_at is null or b.looked_at < now() - interval '2 seconds'
    order by b.workspace, b.name
    for no key update of b skip locked
),
unsummed as materialized (
    select u.workspace, u.agent_type, (u.at at time zone 'UTC')::date as day, sum(u.cost) as cost,
        sum(u.input_tokens + u.output_tokens) as tokens
    from grns.usage u
    where not u.is_summed
    group by 1, 2, 3
),
seen as (
    select h.*, u.cost, u.tokens,
        coalesce(u.cost >= h.max_cost + case when h.is_same then h.extra_cost else 0 end, false)
            or coalesce(u.tokens >= h.max_tokens + case when h.is_same then h.extra_tokens else 0 end, false) as is_over
    from held h
    cross join lateral (
        select coalesce(sum(f.cost), 0) as cost, coalesce(sum(f.tokens), 0)::bigint as tokens
        from (
            select d.cost, d.input_tokens + d.output_tokens as tokens
            from grns.usage_days d
            where d.workspace = h.workspace and d.day >= h.begins_on and h.agent_type in ('', d.agent_type)
            union all
            select n.cost, n.tokens
            from unsummed n
            where n.workspace = h.workspace and n.day >= h.begins_on and h.agent_type in ('', n.agent_type)
        ) as f
    ) as u
),
noted as (
    update grns.budgets b
    set begins_on = s.begins_on, used_cost = s.cost, used_tokens = s.tokens, looked_at = now(),
        extra_cost = case when s.is_same then s.extra_cost else 0 end,
        extra_tokens = case when s.is_same then s.extra_tokens else 0 end,
        exceeded_since = case when s.is_over then coalesce(case when s.is_same then s.exceeded_since end, now()) end
    from seen s
    where b.workspace = s.workspace and b.name = s.name
    returning b.*, s.is_over and not (s.is_same is true and s.exceeded_since is not null) as has_come
)
select n.workspace, n.name, nullif(n.agent_type, '') as agent_type, n.period, n.action, n.begins_on,
    n.used_cost::double precision as used_cost, (n.max_cost + n.extra_cost)::double precision as max_cost, n.used_tokens,
    n.max_tokens + n.extra_tokens as max_tokens
from noted n
where n.has_come
order by n.workspace, n.name
