-- Notes that a reaper is alive; says whether reapers must hold still, so that live workers can renew first:
-- for one lease after no reaper ticked for a whole lease, or after the server restarted.
-- $1 lease in seconds
with longest as (
    select greatest($1::double precision, (select max(a.lease_seconds) from grns.agents a
        where a.stopped_at is null and a.last_seen_at > now() - interval '1 day')) * interval '1 second' as lease
)
update grns.reaper_state r
set hold_until = case
        when r.hold_until > now() then r.hold_until
        when r.last_tick_at < now() - longest.lease then now() + longest.lease
        when r.server_started_at <> pg_postmaster_start_time() then now() + longest.lease
        else r.hold_until
    end,
    last_tick_at = now(), server_started_at = pg_postmaster_start_time()
from longest
where r.id = 1
returning coalesce(r.hold_until > now(), false) as is_holding
