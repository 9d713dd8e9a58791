-- Remembers that messages have been handled, as mark_processed does; a row for each that had not been. In one order,
-- so that batches do not deadlock. $1 consumers, $2 message ids
insert into grns.processed_messages (consumer, message_id)
select w.consumer, w.message_id
from unnest($1::text[], $2::uuid[]) as w (consumer, message_id)
order by w.consumer, w.message_id
on conflict do nothing
returning consumer, message_id
