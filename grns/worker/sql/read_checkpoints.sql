-- Reads the checkpoints of tasks. $1 ids, $2 their workspaces
select p.task_id, p.checkpoint::text as checkpoint
from unnest($1::text[], $2::text[]) as w (id, workspace)
join grns.progress p on p.task_id = w.id and p.workspace = w.workspace
where p.checkpoint is not null
