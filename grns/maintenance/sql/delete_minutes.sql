-- Forgets what happened in minutes past their retention. $1 rows at most, $2 retention in seconds
delete from grns.task_minutes k
where k.ctid = any(array(
    select o.ctid from grns.task_minutes o
    where o.minute < now() - $2::double precision * interval '1 second'
    order by o.minute
    limit $1
))
returning k.workspace
