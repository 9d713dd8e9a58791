-- Reads where so many tasks end, whosesoever they are, the latest first: the time that an id begins with. A null where
-- there are not so many. $1 behind this id, $2 how many
select grns.edge_of_latest($1, $2) as edge
