-- Reads where so many tasks end that wait for a time, whosesoever they are, the next first. A null where there are not
-- so many. $1 from this time on (null: from the first), $2 how many
select grns.edge_of_due(coalesce($1::timestamptz, '-infinity'), $2) as edge
