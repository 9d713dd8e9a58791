-- Reads the next rows of a partition that was taken off the log, up to so many bytes of payload: one row more than fits.
-- $1 after this number, $2 rows at most, $3 bytes
select e.seq, e.workspace, e.created_at as at, left(e.message_id::text, 8) as mark, row_to_json(e)::text as document
from (
    select s.seq, sum(s.bytes) over (order by s.seq) - s.bytes as bytes_before
    from (
        select d.seq, octet_length(d.payload::text) as bytes from grns.{partition} d where d.seq > $1 order by d.seq limit $2
    ) as s
) as p
cross join lateral (select d.* from grns.{partition} d where d.seq = p.seq limit 1) as e
where p.bytes_before < $3::bigint
order by e.seq
