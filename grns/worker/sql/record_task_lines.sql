-- Keeps what attempts that own their tasks have logged: about 1,000 lines of an attempt, about 1,000 more from WARN on, and those
-- of the latest ten attempts. A line that is there stays as it is. Answers for each attempt as record_progress.sql.
-- $1 ids, $2 attempts, $3 lease_ids, $4 workspaces; of each line: $5 place of its attempt in those, $6 number, $7 age in seconds,
-- $8 level, $9 message, $10 fields
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::text[]) with ordinality as w (id, attempt, lease_id, workspace, place)
),
-- The task stays this attempt's until its lines are committed.
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
    join held h on h.id = w.id and h.attempt = w.attempt and h.lease_id = w.lease_id and h.workspace = w.workspace
),
room as (
    select o.id, o.attempt, o.workspace, o.place, (
        select count(*)
        from (select from grns.task_lines k where k.task_id = o.id and k.attempt = o.attempt limit 2000) as f
    ) as kept
    from owned o
),
added as (
    insert into grns.task_lines (task_id, attempt, number, workspace, at, level, message, fields)
    select r.id, r.attempt, l.number, r.workspace, statement_timestamp() - l.age * interval '1 second', l.level, l.message,
        l.fields
    from unnest($5::integer[], $6::bigint[], $7::double precision[], $8::smallint[], $9::text[], $10::text[]::json[])
        as l (place, number, age, level, message, fields)
    join room r on r.place = l.place
    where r.kept < case when l.level < 30 then 1000 else 2000 end
    on conflict do nothing
),
old as (
    delete from grns.task_lines k using owned o where k.task_id = o.id and k.attempt <= o.attempt - 10
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
