-- Forgets that messages have been handled: those that turned out to have no effect. $1 consumers, $2 message ids
delete from grns.processed_messages m
using unnest($1::text[], $2::uuid[]) as w (consumer, message_id)
where m.consumer = w.consumer and m.message_id = w.message_id
