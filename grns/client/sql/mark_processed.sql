-- Remembers that a consumer has handled a message; no row where it had. $1 consumer, $2 message id
insert into grns.processed_messages (consumer, message_id) values ($1, $2)
on conflict do nothing
returning message_id
