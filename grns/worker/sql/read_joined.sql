-- Reads how tasks have ended, and whether one of them waits for the task that asks. $1 ids, $2 workspace, $3 id of who asks
select t.id, t.finished_at is not null as has_ended, t.status = 'succeeded' as has_succeeded, t.result::text as result,
    t.id = $3 or (t.finished_at is null and grns.waits_for_task(t.id, $3)) as waits_for_me
from grns.tasks t
where t.id = any($1::text[]) and t.workspace = $2
