-- Returns the statuses of tasks that are watched. $1 ids, $2 workspaces
select t.id, t.workspace, t.status, t.attempt
from unnest($1::text[], $2::text[]) as w (id, workspace)
join grns.tasks t on t.id = w.id and t.workspace = w.workspace
