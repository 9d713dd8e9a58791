-- Notes what attempts that own their tasks have used: up to 1,000 items of an attempt. An item that is there stays as it is.
-- Answers for each attempt as record_progress.sql.
-- $1 ids, $2 attempts, $3 lease_ids, $4 workspaces; of each item: $5 place of its attempt in those, $6 its name, $7 model, $8 input
-- tokens, $9 output tokens, $10 tokens read from a cache, $11 written to one, $12 of reasoning, $13 seconds, $14 cost, $15 its source
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::text[]) with ordinality as w (id, attempt, lease_id, workspace, place)
),
-- The task stays this attempt's until its items are committed.
held as (
    select t.id, t.attempt, t.lease_id, t.workspace, t.agent_type, t.task_type
    from grns.tasks t
    where t.id = any($1::text[]) and t.status = 'running' and exists (
        select from wanted w
        where w.id = t.id and w.attempt = t.attempt and w.lease_id = t.lease_id and w.workspace = t.workspace)
    order by t.id
    for share of t skip locked
),
owned as (
    select w.*, h.agent_type, h.task_type, (
        select count(*) from (select from grns.usage u where u.task_id = w.id and u.attempt = w.attempt limit 1000) as f) as kept
    from wanted w
    join held h on h.id = w.id and h.attempt = w.attempt and h.lease_id = w.lease_id and h.workspace = w.workspace
),
added as (
    insert into grns.usage (task_id, attempt, item, workspace, agent_type, task_type, model, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, reasoning_tokens, compute_seconds, cost, cost_source)
    select o.id, o.attempt, i.item, o.workspace, o.agent_type, o.task_type, i.model, i.input_tokens, i.output_tokens,
        i.cache_read_tokens, i.cache_write_tokens, i.reasoning_tokens, i.compute_seconds, i.cost, i.cost_source
    from unnest($5::integer[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::double precision[], $14::text[]::numeric[], $15::text[]) as i (place, item, model, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, reasoning_tokens, compute_seconds, cost, cost_source)
    join owned o on o.place = i.place and o.kept < 1000
    on conflict do nothing
)
select case
        when w.place in (select o.place from owned o) then 'recorded'
        when t.id is not null then 'locked'
        else 'lost'
    end as verdict,
    false as is_overdue
from wanted w
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
    and t.status = 'running'
order by w.place
