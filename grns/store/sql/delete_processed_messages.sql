-- Forgets handled message ids past their retention. $1 rows at most, $2 retention in seconds
delete from grns.processed_messages m
using (
    select o.consumer, o.message_id from grns.processed_messages o
    where o.processed_at < now() - $2::double precision * interval '1 second'
    order by o.processed_at
    limit $1
) as old
where m.consumer = old.consumer and m.message_id = old.message_id
returning m.consumer
