-- Deletes one page of the rows of {table} whose {column} is past their retention; rows that another transaction has
-- locked stay for the next page. $1 rows at most, $2 retention in seconds
delete from grns.{table} d
where d.ctid = any(array(
    select o.ctid from grns.{table} o
    where o.{column} < now() - $2::double precision * interval '1 second' and {condition}
    order by o.{column}
    limit $1
    for update skip locked
))
returning 1
