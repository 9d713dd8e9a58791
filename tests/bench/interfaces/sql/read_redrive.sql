-- Returns when each batch was opened again, in seconds, and how many tasks it had, in order.
-- $1 operation, $2 the number behind which it began
select extract(epoch from min(e.created_at))::double precision as at, count(*) as tasks
from grns.events e
where e.seq > $2 and e.kind = 'evt.task.queued' and e.payload ->> 'operation_id' = $1::bigint::text
group by e.xmin::text
order by 1
