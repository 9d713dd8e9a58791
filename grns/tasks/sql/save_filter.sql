-- Keeps a filter under a name; one that had the name is replaced. $1 workspace, $2 name, $3 text, $4 who saves it
insert into grns.saved_filters as f (workspace, name, text, saved_by)
values ($1, $2, $3, $4)
on conflict (workspace, name) do update
set text = excluded.text, saved_by = excluded.saved_by, saved_at = now()
