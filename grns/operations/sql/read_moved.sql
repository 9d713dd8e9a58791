-- Reads which of some tasks an operation has dealt with already. $1 ids, $2 operation
select t.id
from unnest($1::text[]) as w (id)
join grns.tasks t on t.id = w.id
where t.operation_id = $2
