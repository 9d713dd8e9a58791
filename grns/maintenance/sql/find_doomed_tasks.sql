-- Which tasks of one page of ids delete_tasks.sql would delete, and about how large each is as JSON, in bytes.
-- Always one row: of the page, without an id, where there is none.
-- $1 after this id, $2 rows to look at, $3 retention of succeeded and cancelled, $4 of dead and failed, in seconds
with page as (
    select t.id from grns.tasks t where t.id > $1 order by t.id limit $2
),
doomed as (
    select t.id, octet_length(row_to_json(t)::text)
        + coalesce((select sum(octet_length(row_to_json(s)::text)) from grns.steps s where s.task_id = t.id), 0)
        + coalesce((select sum(octet_length(row_to_json(l)::text)) from grns.task_lines l where l.task_id = t.id), 0)
        + coalesce((select sum(octet_length(row_to_json(g)::text)) from grns.signals g where g.task_id = t.id), 0)
        + coalesce((select sum(octet_length(row_to_json(q)::text)) from grns.questions q where q.task_id = t.id), 0)
        + coalesce((select sum(octet_length(row_to_json(r)::text)) from grns.progress r where r.task_id = t.id), 0)
        + coalesce((select sum(octet_length(row_to_json(b)::text)) from grns.labels b where b.task_id = t.id), 0) as size
    from page p
    join grns.tasks t on t.id = p.id
    where ((t.status in ('succeeded', 'cancelled')
            and coalesce(t.finished_at, 'infinity') < now() - $3::double precision * interval '1 second')
        or (t.status in ('dead', 'failed')
            and coalesce(t.finished_at, 'infinity') < now() - $4::double precision * interval '1 second'))
        and not exists (
            select from grns.needs e
            left join grns.tasks p on p.id = e.task_id
            where e.needs = t.id and (e.ended_as is null or e.task_id like 'wf-%' or p.finished_at is null and p.id is not null)
        )
        and not exists (
            select from grns.kept_tasks k where k.task_id = t.id and k.until > now()
        )
)
select d.id, d.size, p.last_id, p.seen
from (select max(p.id) as last_id, count(*) as seen from page p) as p
left join doomed d on true
order by d.id
