-- Reads a workspace, if it was created. $1 workspace
select w.workspace, w.created_at, w.created_by
from grns.workspaces w
where w.workspace = $1
