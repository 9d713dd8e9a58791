-- Forgets replays that ended long ago. $1 rows at most, $2 retention in seconds
delete from grns.replays r
where r.id = any(array(
    select o.id from grns.replays o
    where o.ended_at < now() - $2::double precision * interval '1 second'
    order by o.id
    limit $1
))
returning r.id
