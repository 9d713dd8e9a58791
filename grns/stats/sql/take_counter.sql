-- Takes the lead of the counter where nobody (else) holds it. $1 owner, $2 lease in seconds
update grns.count_cursor c
set epoch = c.epoch + 1, owner = $1, lease_until = now() + $2::double precision * interval '1 second', updated_at = now()
where c.id = 1 and (c.lease_until < now() or c.owner = $1)
returning c.epoch, c.moves, c.low,
    array(select lower(r) from unnest(c.counted) as r) as counted_from,
    array(select upper(r) from unnest(c.counted) as r) as counted_to
