-- Forgets handled message ids past their retention. $1 rows at most, $2 retention in seconds
delete from grns.processed_messages m
where m.ctid = any(array(
    select o.ctid from grns.processed_messages o
    where o.processed_at < now() - $2::double precision * interval '1 second'
    order by o.processed_at
    limit $1
))
returning m.consumer
