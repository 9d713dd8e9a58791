-- Deletes a limit, for all pools. $1 workspace, $2 name
delete from grns.limits l where l.workspace = $1 and l.name = $2 returning l.name
