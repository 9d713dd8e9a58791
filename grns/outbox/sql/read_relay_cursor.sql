-- Reads how far the log has been published; and the timeline of the server that says so.
select grns.timeline() as timeline, c.low, c.evt_epoch, c.evt_last_seq, c.evt_mark_seqs, c.evt_mark_rows, c.evt_lost_since, c.evt_lost_settled, c.dlq_epoch,
    c.dlq_last_seq, c.dlq_mark_seqs, c.dlq_mark_rows, c.dlq_lost_since, c.dlq_lost_settled,
    array(select lower(r) from unnest(c.published) as r) as published_from,
    array(select upper(r) from unnest(c.published) as r) as published_to
from grns.relay_cursor c
