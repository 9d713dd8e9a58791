-- Notes that an agent has processed what was handed out to it: all up to a number, or some by their ids. What was never handed out
-- stays, also if it has a lower number. $1 workspace, $2 agent, $3 number (null: none), $4 ids
with acked as (
    update grns.mail m
    set acked_at = clock_timestamp()
    where m.workspace = $1 and m.to_agent = $2 and m.acked_at is null and m.delivered_at is not null
        and (m.seq <= $3::bigint or m.id = any($4::uuid[]))
    returning 1
)
select count(*) as acked from acked
