-- Takes the lead of the relay where nobody (else) holds it. $1 owner, $2 lease in seconds
update grns.relay_cursor c
set epoch = c.epoch + 1, owner = $1, lease_until = now() + $2::double precision * interval '1 second', updated_at = now()
where c.id = 1 and (c.lease_until < now() or c.owner = $1)
returning c.epoch, grns.timeline() as timeline, c.low, c.evt_epoch, c.evt_last_seq, c.evt_lost_since,
    c.evt_lost_settled, c.dlq_epoch, c.dlq_last_seq, c.dlq_lost_since, c.dlq_lost_settled,
    array(select lower(r) from unnest(c.published) as r) as published_from,
    array(select upper(r) from unnest(c.published) as r) as published_to
