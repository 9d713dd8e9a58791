-- Deletes rejected messages that were closed long ago: sent again or discarded. $1 rows at most, $2 retention in seconds
delete from grns.dead_letters d
where d.id = any(array(
    select o.id from grns.dead_letters o
    where o.state <> 'new' and o.updated_at < now() - $2::double precision * interval '1 second'
    order by o.updated_at
    limit $1
))
returning d.id
