-- Allows more than a budget in the present period. No row: there is none, or it has no such amount.
-- $1 workspace, $2 name, $3 US dollars, $4 tokens, $5 who asks, $6 most US dollars and $7 most tokens that may be allowed in all
update grns.budgets b
set extra_cost = least(case when p.is_same then b.extra_cost else 0 end + $3::text::numeric, $6::text::numeric),
    extra_tokens = least(case when p.is_same then b.extra_tokens else 0 end + $4::bigint, $7::bigint),
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
    and ($3::text::numeric = 0 or b.max_cost is not null) and ($4::bigint = 0 or b.max_tokens is not null)
returning b.name
