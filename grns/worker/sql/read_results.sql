-- Reads the results of the tasks that a task was submitted to need; what its handler waits for has no name. $1 its id, $2 workspace
select e.name, t.result::text as result
from grns.needs e
join grns.tasks t on t.id = e.needs
where e.task_id = $1 and e.workspace = $2 and e.name is not null and t.status = 'succeeded'
order by t.id
