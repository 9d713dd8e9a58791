-- Renews the relay's lease and persists how far the log has been published, if the epoch is still ours; and
-- if this is still the server that the cursor was read from: behind a pooler a failover breaks no connection, and
-- numbers that were published there may be other rows here. Returns its transaction's id: a transaction that took a number of the
-- log before has a lower one.
-- $1 epoch, $2 lease in seconds, $3 low, $4 and $5 bounds of what is published beyond,
-- $6 and $7 which GRNS_EVT it was, and the highest number that it acknowledged, $8 and $9 from where on it has lost
-- something and up to where it has that again, $10 to $13 the same of GRNS_DLQ, $14 timeline of the server,
-- $15 whether commits shall wake the relay, $16 and $17 places in GRNS_EVT and the rows whose messages they are to have,
-- $18 and $19 the same of GRNS_DLQ
with held as (
    update grns.leases l set until = now() + $2::double precision * interval '1 second'
    where l.name = 'relay' and l.epoch = $1 and grns.timeline() = $14
    returning l.name
)
update grns.relay_cursor c
set low = $3,
    published = (select coalesce(range_agg(int8range(p.lower_seq, p.upper_seq)), '{}')
        from unnest($4::bigint[], $5::bigint[]) as p (lower_seq, upper_seq)),
    evt_epoch = $6, evt_last_seq = $7, evt_lost_since = $8, evt_lost_settled = $9,
    dlq_epoch = $10, dlq_last_seq = $11, dlq_lost_since = $12, dlq_lost_settled = $13,
    is_idle = $15, evt_mark_seqs = $16, evt_mark_rows = $17, dlq_mark_seqs = $18, dlq_mark_rows = $19, updated_at = now()
from held h
where c.id = 1
returning pg_current_xact_id()::text::bigint as xid
