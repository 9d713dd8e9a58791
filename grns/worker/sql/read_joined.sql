-- Reads how tasks have ended. $1 ids, $2 workspace
select t.id, t.finished_at is not null as has_ended, t.status = 'succeeded' as has_succeeded, t.result::text as result
from grns.tasks t
where t.id = any($1::text[]) and t.workspace = $2
