-- Deletes rows of {table} that are still as they were read, and that no other transaction has locked; returns their {key}.
-- $1 the {key} of each, $2 what was read of it, as JSON
with held as (
    select d.{key} as key
    from unnest($1::bigint[], $2::text[]) as a (key, document)
    join grns.{table} d on d.{key} = a.key
    where row_to_json(d)::text = a.document
    order by d.{key}
    for update of d skip locked
)
delete from grns.{table} d
using held h
where d.{key} = h.key
returning d.{key} as key
