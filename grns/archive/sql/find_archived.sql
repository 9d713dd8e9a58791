-- Up to which number a partition that was taken off the log is archived without a gap; 0: nothing of it. What is there has to be what
-- the name of an archive says: the first and the last message of it.
-- $1 first and $2 last number of each archive, $3 first digits of the ids of both messages
with recursive known (first, last) as materialized (
    select a.first, a.last
    from unnest($1::bigint[], $2::bigint[], $3::text[]) as a (first, last, mark)
    where a.mark = (select left(e.message_id::text, 8) from grns.{partition} e where e.seq = a.first)
        || '-' || (select left(e.message_id::text, 8) from grns.{partition} e where e.seq = a.last)
),
chain (last) as (
    select 0::bigint
    union
    select k.last
    from chain c
    join known k on k.first = (select min(e.seq) from grns.{partition} e where e.seq > c.last)
)
select max(c.last) as seq from chain c
