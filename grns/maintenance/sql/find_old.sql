-- Reads and holds one page of the rows of {table} whose {column} is past their retention, as JSON, up to so many bytes: one row more
-- than fits. Rows that another transaction has locked stay for the next page. Says of each how many there would have been.
-- $1 rows at most, $2 retention in seconds, $3 bytes
with old as (
    select o.workspace, o.{key} as key, o.{column} as at, row_to_json(o)::text as document
    from grns.{table} o
    where o.{column} < now() - $2::double precision * interval '1 second' and {condition}
    order by o.{column}
    limit $1
    for update skip locked
),
sized as (
    select d.*, sum(octet_length(d.document)) over (order by d.key) - octet_length(d.document) as bytes_before, count(*) over () as found
    from old d
)
select d.workspace, d.key, d.at, d.document, d.found
from sized d
where d.bytes_before < $3::bigint
order by d.key
