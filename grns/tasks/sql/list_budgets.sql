-- Lists budgets by name; what was used, and allowed beyond them, is that of the present period. $1 workspace, $2 name (null: all of them)
select b.workspace, b.name, nullif(b.agent_type, '') as agent_type, b.period, b.max_cost::double precision as max_cost, b.max_tokens,
    b.action, p.begins_on, case when p.is_same then b.used_cost else 0 end::double precision as used_cost,
    case when p.is_same then b.used_tokens else 0 end as used_tokens,
    case when p.is_same then b.extra_cost else 0 end::double precision as extra_cost,
    case when p.is_same then b.extra_tokens else 0 end as extra_tokens,
    case when p.is_same then b.exceeded_since end as exceeded_since, b.looked_at, b.updated_at, b.updated_by,
    case when p.is_same then greatest(coalesce(b.used_cost / (b.max_cost + b.extra_cost), 0),
        coalesce(b.used_tokens::numeric / (b.max_tokens + b.extra_tokens), 0)) else 0 end::double precision as used_share
from grns.budgets b
cross join lateral (
    select n.begins_on, b.begins_on is not distinct from n.begins_on as is_same
    from (select grns.period_begin(b.period) as begins_on) as n
) as p
where b.workspace = $1 and b.name = coalesce($2, b.name)
order by b.name
