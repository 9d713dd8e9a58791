-- Forgets deliveries of long ago, whatever came of them. $1 rows at most, $2 retention in seconds
delete from grns.webhook_deliveries d
where d.ctid = any(array(
    select o.ctid from grns.webhook_deliveries o
    where o.created_at < now() - $2::double precision * interval '1 second'
    order by o.created_at
    limit $1
))
returning d.seq
