-- Notes that messages are handed out, and returns those that were not acknowledged since they were read. $1 their numbers, as `poll_mail`
-- has returned them
with held as (  -- in the order in which an acknowledgement locks them
    select m.seq, m.acked_at from grns.mail m
    where m.seq = any($1::bigint[])
    order by m.seq
    for no key update
)
update grns.mail m
set delivered_at = coalesce(m.delivered_at, clock_timestamp()), deliveries = m.deliveries + 1
from held h
where m.seq = h.seq and h.acked_at is null
returning m.seq, m.delivered_at, m.deliveries
