-- Looks what became of the tasks that an operation has redriven, one page of them: those that have ended are counted
-- and forgotten. Only what this statement forgets it counts: two runners count none twice.
-- Behind the last page it waits, the longer the longer ago the operation has moved something.
-- $1 rows at most, $2 least pause in seconds
with held as (
    select o.id, o.follow_after
    from grns.operations o
    where o.follow_at <= now()
    order by o.follow_at
    limit 1
    for update skip locked
),
page as (
    select m.operation_id, m.task_id, m.version
    from held h
    cross join lateral (
        select f.operation_id, f.task_id, f.version from grns.operation_tasks f
        where f.operation_id = h.id and f.task_id > h.follow_after
        order by f.task_id
        limit $1
    ) as m
),
ended as (
    select p.operation_id, p.task_id, t.status
    from page p
    left join grns.tasks t on t.id = p.task_id
    where t.id is null or (t.version > p.version and t.status in ('succeeded', 'failed', 'dead', 'cancelled'))
),
forgotten as (
    delete from grns.operation_tasks m
    using ended e
    where m.operation_id = e.operation_id and m.task_id = e.task_id
    returning e.status
),
counted as (
    select count(*) as tasks, count(*) filter (where f.status = 'succeeded') as succeeded,
        count(*) filter (where f.status in ('dead', 'failed')) as failed_again,
        (select count(*) from page) as seen, (select max(p.task_id) from page p) as last_id
    from forgotten f
)
update grns.operations o
set succeeded = o.succeeded + c.succeeded, failed_again = o.failed_again + c.failed_again,
    ended_otherwise = o.ended_otherwise + c.tasks - c.succeeded - c.failed_again,
    follow_after = case when c.seen < $1 then '' else c.last_id end,
    follow_at = case
        when o.moved = o.succeeded + o.failed_again + o.ended_otherwise + c.tasks then null  -- none is left
        when c.seen >= $1 then now()
        else now() + greatest($2::double precision * interval '1 second', (now() - o.moved_at) / 100)
    end
from held h, counted c
where o.id = h.id
returning o.id, c.seen, c.tasks
