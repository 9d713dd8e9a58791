-- Notes that an agent has processed messages that were handed out to it. They are named one by one: a transaction that commits late
-- may have a lower number than what was read before it. $1 workspace, $2 agent, $3 ids
with found as (  -- in the order in which a poll locks them
    select m.seq from grns.mail m
    where m.workspace = $1 and m.to_agent = $2 and m.acked_at is null and m.delivered_at is not null and m.id = any($3::uuid[])
    order by m.seq
    for no key update
),
acked as (
    update grns.mail m
    set acked_at = clock_timestamp()
    from found f
    where m.seq = f.seq
    returning 1
)
select count(*) as acked from acked
