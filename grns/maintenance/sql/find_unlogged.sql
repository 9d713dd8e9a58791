-- Says which published messages are not in the log, and where their tasks are now. Of what stood in partitions
-- that have gone by now nothing is said. $1 numbers in the log, $2 message ids, $3 task ids
select w.place, (select t.status from grns.tasks t where t.id = w.task_id) as status
from unnest($1::bigint[], $2::uuid[], $3::text[]) with ordinality as w (seq, message_id, task_id, place)
where w.seq >= (select coalesce(min(p.lower_seq), 1) from grns.log_partitions p)
    and (select e.message_id from grns.events e where e.seq = w.seq) is distinct from w.message_id
order by w.place
