-- Reads which share of each budget is used in its present period, by cost or by tokens, whichever is more.
select b.workspace, b.name, case when b.begins_on = grns.period_begin(b.period) then greatest(
        b.used_cost / nullif(b.max_cost + b.extra_cost, 0), b.used_tokens::numeric / nullif(b.max_tokens + b.extra_tokens, 0), 0)
    else 0 end::double precision as share
from grns.budgets b
