-- Reads only where tasks are: for clients that wait. $1 ids, $2 workspace
select t.id, t.status from unnest($1::text[]) as w (id) join grns.tasks t on t.id = w.id where t.workspace = $2
