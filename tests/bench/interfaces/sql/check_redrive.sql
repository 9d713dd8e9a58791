-- Says of how many tasks that were dead the tables and the log agree that they were redriven once: the row is queued one
-- version later, and bears the operation; the log has one event of it since, with its command. And of how many not; how
-- many others were moved besides; what the operation says of it; how often the log says that it has ended.
-- $1 operation, $2 the number in the log behind which it began
with told as (
    select e.task_id,
        count(*) filter (where e.kind = 'evt.task.queued' and e.payload ->> 'operation_id' = $1::bigint::text) as opened,
        count(*) filter (where e.route is not null) as sent, count(*) as rows
    from grns.events e
    where e.seq > $2 and e.task_id is not null
    group by e.task_id
),
held as (
    select d.id, (t.status = 'queued' and t.queued_reason = 'redriven' and t.operation_id = $1 and t.version = d.version + 1
        and t.attempt = d.attempt and t.uncounted_attempts = d.attempt and o.opened = 1 and o.sent = 1 and o.rows = 1) is true as is_once
    from public.dead_before d
    left join grns.tasks t on t.id = d.id
    left join told o on o.task_id = d.id
)
select (select count(*) from held h where h.is_once) as once, (select count(*) from held h where not h.is_once) as otherwise,
    (select count(*) from told o where not exists (select from public.dead_before d where d.id = o.task_id)) as others,
    p.moved, p.skipped,
    (select count(*) from grns.events e
        where e.seq > $2 and e.kind = 'evt.operation.ended' and e.payload ->> 'operation_id' = p.id::text) as ends
from grns.operations p
where p.id = $1
