-- Records steps of attempts that own their tasks, and answers for each with `recorded` and the value that is kept, which is the
-- first one, with `lost`, with `locked` where another transaction has the task locked now, or with `again` where the
-- first one was recorded just now.
-- $1 ids, $2 attempts, $3 lease_ids, $4 workspaces, $5 names, $6 kinds, $7 values
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[]::jsonb[])
        with ordinality as w (id, attempt, lease_id, workspace, name, kind, value, place)
),
-- The task stays this attempt's until the step is committed.
held as (
    select t.id, t.attempt, t.lease_id, t.workspace
    from grns.tasks t
    where t.id = any($1::text[]) and t.status = 'running' and exists (
        select from wanted w
        where w.id = t.id and w.attempt = t.attempt and w.lease_id = t.lease_id and w.workspace = t.workspace)
    order by t.id
    for share of t skip locked
),
owned as (
    select w.* from wanted w
    where (w.id, w.attempt, w.lease_id, w.workspace) in (select h.id, h.attempt, h.lease_id, h.workspace from held h)
),
kept as (
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    select w.id, w.name, w.workspace, w.kind, w.value, w.attempt
    from owned w
    on conflict (task_id, name) do nothing
    returning task_id, name
)
select case
        when w.place in (select o.place from owned o) then case
            when s.name is not null or (w.id, w.name) in (select k.task_id, k.name from kept k) then 'recorded' else 'again' end
        when t.id is not null then 'locked'
        else 'lost'
    end as verdict,
    s.value::text as value  -- null: this one's
from wanted w
left join grns.steps s on s.task_id = w.id and s.name = w.name
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
    and t.status = 'running'
order by w.place
