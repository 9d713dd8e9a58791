-- Forgets operations that ended long ago, and what they had redriven that has not ended to this day.
-- $1 rows at most, $2 retention in seconds
with doomed as (
    select o.id
    from grns.operations o
    where o.ended_at < now() - $2::double precision * interval '1 second'
    order by o.id
    limit $1
    for update skip locked
),
left_over as (
    delete from grns.operation_tasks m using doomed d where m.operation_id = d.id
)
delete from grns.operations o using doomed d where o.id = d.id
returning o.id
