-- Which archives have a part of a partition that was taken off the log, and where the next part begins; null: behind its end. What is
-- there has to be what the name of an archive says: its first and its last message. Always one row: of the partition's start.
-- $1 first and $2 last number of each archive, $3 first digits of the ids of both messages
select s.start, k.first, k.last, k.next
from (select min(e.seq) as start from grns.{partition} e) as s
left join (
    select a.first, a.last, (select min(e.seq) from grns.{partition} e where e.seq > a.last) as next
    from unnest($1::bigint[], $2::bigint[], $3::text[]) as a (first, last, mark)
    where a.mark = (select left(e.message_id::text, 8) from grns.{partition} e where e.seq = a.first)
        || '-' || (select left(e.message_id::text, 8) from grns.{partition} e where e.seq = a.last)
) as k on true
