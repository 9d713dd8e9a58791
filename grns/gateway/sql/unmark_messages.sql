-- Forgets that messages have been handled: those that turned out to have no effect. $1 consumers, $2 message ids
delete from grns.processed_messages m
using unnest($1::text[], $2::uuid[]) as w (consumer, message_id)
cross join lateral (  -- with its limit no planner can turn this into a scan of all that was ever handled
    select p.ctid as place
    from grns.processed_messages p
    where p.consumer = w.consumer and p.message_id = w.message_id
    limit 1
) as f
where m.ctid = f.place
