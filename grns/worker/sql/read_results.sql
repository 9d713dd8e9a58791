-- Reads the results of the tasks that a task needs. $1 its id, $2 workspace
select coalesce(e.name, e.needs) as name, t.result::text as result
from grns.needs e
join grns.tasks t on t.id = e.needs
where e.task_id = $1 and e.workspace = $2 and t.status = 'succeeded'
order by t.id
