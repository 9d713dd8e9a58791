-- Reads what an operation is about to move, as it is. $1 ids, $2 workspace, $3 whether with their payloads
select t.id, t.status, t.version, t.created_at, t.updated_at, t.finished_at,
    case when $3::boolean then t.payload::text end as payload
from unnest($1::text[]) as w (id)
join grns.tasks t on t.id = w.id
where t.workspace = $2
