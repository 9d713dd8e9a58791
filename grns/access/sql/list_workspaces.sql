-- Lists workspaces by their names. $1 behind which one, null for the first, $2 how many
select w.workspace, w.created_at, w.created_by
from grns.workspaces w
where w.workspace > coalesce($1::text, '')
order by w.workspace
limit $2::integer
