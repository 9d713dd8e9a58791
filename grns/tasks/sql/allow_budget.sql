-- Allows more than a budget in the present period. $1 workspace, $2 name, $3 US dollars, $4 tokens, $5 who asks
update grns.budgets b
set extra_cost = case when p.is_same then b.extra_cost else 0 end + $3::text::numeric,
    extra_tokens = case when p.is_same then b.extra_tokens else 0 end + $4,
    used_cost = case when p.is_same then b.used_cost else 0 end, used_tokens = case when p.is_same then b.used_tokens else 0 end,
    exceeded_since = case when p.is_same then b.exceeded_since end,
    begins_on = grns.period_begin(b.period), looked_at = null, updated_at = now(), updated_by = $5
from (
    select o.workspace, o.name, o.begins_on is not distinct from grns.period_begin(o.period) as is_same
    from grns.budgets o
    where o.workspace = $1 and o.name = $2
    for no key update
) as p
where b.workspace = p.workspace and b.name = p.name
returning b.name
