-- Makes a workspace known; no row where it is. $1 its name, $2 who asks
insert into grns.workspaces (workspace, created_by) values ($1, $2)
on conflict do nothing
returning workspace, created_at, created_by
