-- Reads the next rows of a partition that was taken off the log, up to so many bytes of payload: one row more than fits.
-- $1 after this number, $2 rows at most, $3 bytes
select p.seq, p.workspace, p.at, p.document
from (
    select e.seq, e.workspace, e.created_at as at, row_to_json(e)::text as document,
        sum(octet_length(e.payload::text)) over (order by e.seq) - octet_length(e.payload::text) as bytes_before
    from (
        select d.* from grns.{partition} d where d.seq > $1 order by d.seq limit $2
    ) as e
) as p
where p.bytes_before < $3::bigint
order by p.seq
