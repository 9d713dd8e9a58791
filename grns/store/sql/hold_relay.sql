-- Renews the lead and persists how far the log has been published, if the epoch is still ours.
-- $1 epoch, $2 lease in seconds, $3 low, $4 and $5 bounds of what is published beyond, $6 broker's epoch,
-- $7 highest acknowledged place in GRNS_EVT
update grns.relay_cursor c
set lease_until = now() + $2::double precision * interval '1 second', low = $3,
    published = (select coalesce(range_agg(int8range(p.lower_seq, p.upper_seq)), '{}')
        from unnest($4::bigint[], $5::bigint[]) as p (lower_seq, upper_seq)),
    broker_epoch = $6, evt_last_seq = $7, updated_at = now()
where c.id = 1 and c.epoch = $1
returning c.epoch
