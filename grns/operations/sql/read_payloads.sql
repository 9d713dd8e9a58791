-- Reads what tasks were given to work on. $1 ids, $2 workspace
select t.id, t.payload::text as payload
from unnest($1::text[]) as w (id)
join grns.tasks t on t.id = w.id
where t.workspace = $2
