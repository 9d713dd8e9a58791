-- Restores the tags of tasks out of their labels. $1 ids of tasks
insert into grns.tags (workspace, tag, task_id)
select l.workspace, t.tag, l.task_id
from grns.labels l
cross join lateral unnest(l.tags) as t (tag)
where l.task_id = any($1::text[])
on conflict do nothing
