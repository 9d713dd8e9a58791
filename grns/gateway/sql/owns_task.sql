-- Says whether an attempt still owns its task. $1 task_id, $2 attempt, $3 lease_id, $4 workspace
select exists (
    select from grns.tasks t
    where t.id = $1 and t.attempt = $2 and t.lease_id = $3 and t.workspace = $4 and t.status = 'running'
) as owns_task
