-- Forgets how often issues were seen in hours past their retention. $1 rows at most, $2 retention in seconds
delete from grns.issue_hours k
where k.ctid = any(array(
    select o.ctid from grns.issue_hours o
    where o.hour < now() - $2::double precision * interval '1 second'
    order by o.hour
    limit $1
))
returning k.workspace
