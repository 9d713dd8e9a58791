-- Sums what was used between two days, by some of day, pool, type and model; what costs most comes first.
-- $1 workspace, $2 first day, $3 last day, $4 by what (text[])
with used as (
    select d.day, d.agent_type, d.task_type, d.model, d.items, d.input_tokens, d.output_tokens, d.cache_read_tokens,
        d.cache_write_tokens, d.reasoning_tokens, d.compute_seconds, d.cost, d.unpriced_items
    from grns.usage_days d
    where d.workspace = $1 and d.day between $2 and $3
    union all
    select (u.at at time zone 'UTC')::date, u.agent_type, u.task_type, u.model, 1, u.input_tokens, u.output_tokens,
        u.cache_read_tokens, u.cache_write_tokens, u.reasoning_tokens, u.compute_seconds, u.cost,
        (u.cost_source = 'none')::integer
    from grns.usage u
    where not u.is_summed and u.workspace = $1 and (u.at at time zone 'UTC')::date between $2 and $3
)
select case when 'day' = any($4::text[]) then u.day end as day,
    case when 'pool' = any($4::text[]) then u.agent_type end as agent_type,
    case when 'type' = any($4::text[]) then u.task_type end as task_type,
    case when 'model' = any($4::text[]) then u.model end as model,
    sum(u.items)::bigint as items, sum(u.input_tokens)::bigint as input_tokens, sum(u.output_tokens)::bigint as output_tokens,
    sum(u.cache_read_tokens)::bigint as cache_read_tokens, sum(u.cache_write_tokens)::bigint as cache_write_tokens,
    sum(u.reasoning_tokens)::bigint as reasoning_tokens, sum(u.compute_seconds) as compute_seconds,
    sum(u.cost)::double precision as cost, sum(u.unpriced_items)::bigint as unpriced_items
from used u
group by 1, 2, 3, 4
order by 1 desc nulls last, sum(u.cost) desc, sum(u.items) desc, 2, 3, 4
limit 1000
