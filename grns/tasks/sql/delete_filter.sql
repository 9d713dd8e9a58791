-- Forgets a filter. $1 workspace, $2 name
delete from grns.saved_filters f
where f.workspace = $1 and f.name = $2
returning f.text
