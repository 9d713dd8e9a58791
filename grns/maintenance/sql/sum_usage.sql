-- Adds what attempts have used to the sums of days, each item once; the oldest first. $1 items at most
with page as (
    select u.task_id, u.attempt, u.item
    from grns.usage u
    where not u.is_summed
    order by u.at
    limit $1
    for update skip locked
),
kept as (
    update grns.usage u
    set is_summed = true
    from page s
    where u.task_id = s.task_id and u.attempt = s.attempt and u.item = s.item
        and exists (select from grns.tasks t where t.id = u.task_id)
    returning u.*
),
gone as (  -- its task has been deleted
    delete from grns.usage u
    using page s
    where u.task_id = s.task_id and u.attempt = s.attempt and u.item = s.item
        and not exists (select from grns.tasks t where t.id = u.task_id)
    returning u.*
),
summed as (
    select k.* from kept k
    union all
    select g.* from gone g
),
added as (
    insert into grns.usage_days as d (workspace, day, agent_type, task_type, model, items, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, reasoning_tokens, compute_seconds, cost, unpriced_items)
    select s.workspace, (s.at at time zone 'UTC')::date, s.agent_type, s.task_type, s.model, count(*), sum(s.input_tokens),
        sum(s.output_tokens), sum(s.cache_read_tokens), sum(s.cache_write_tokens), sum(s.reasoning_tokens),
        sum(s.compute_seconds), sum(s.cost), count(*) filter (where s.cost_source = 'none')
    from summed s
    group by 1, 2, 3, 4, 5
    order by 1, 2, 3, 4, 5
    on conflict (workspace, day, agent_type, task_type, model) do update
    set items = d.items + excluded.items, input_tokens = d.input_tokens + excluded.input_tokens,
        output_tokens = d.output_tokens + excluded.output_tokens,
        cache_read_tokens = d.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = d.cache_write_tokens + excluded.cache_write_tokens,
        reasoning_tokens = d.reasoning_tokens + excluded.reasoning_tokens,
        compute_seconds = d.compute_seconds + excluded.compute_seconds, cost = d.cost + excluded.cost,
        unpriced_items = d.unpriced_items + excluded.unpriced_items
)
select count(*) as summed from summed
