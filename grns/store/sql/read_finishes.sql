-- Reads back what a finish whose answer was lost has finished.
-- $1 ids, $2 event ids
select w.event_id, t.status as verdict, null::double precision as total_seconds
from unnest($1::text[], $2::uuid[]) as w (id, event_id)
join grns.tasks t on t.id = w.id
where exists (select from grns.events e where e.task_id = w.id and e.message_id = w.event_id)
