-- Reads the documents that an attempt was handed and that have secrets. $1 task_id, $2 workspace
select t.payload::text as document
from grns.tasks t
where t.id = $1 and t.workspace = $2 and t.payload::text like '%"$secret"%'
union all
select p.checkpoint::text
from grns.progress p
where p.task_id = $1 and p.workspace = $2 and p.checkpoint::text like '%"$secret"%'
union all
select s.value::text
from grns.steps s
where s.task_id = $1 and s.workspace = $2 and s.kind = 'step' and s.value::text like '%"$secret"%'
