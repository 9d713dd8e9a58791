-- Notes that a reaper is alive; says whether reapers must hold still, so that live workers can renew first:
-- after none ticked for as long as the shortest lease, or after the server restarted. They hold for the longest
-- lease that can have run out meanwhile: workers renew at each third, so of one thrice as long as the silence a
-- third is left. Agents over HTTP (pid 0) name their leases themselves, and together count as one lease: $3, or our own
-- if that is longer. So no tenant changes how long reapers hold, and however many agents there are, one is looked at.
-- $1 own lease, $2 own tick, $3 lease of agents over HTTP, in seconds
with leases as (
    select $1::double precision * interval '1 second' as lease
    union all
    select a.lease_seconds * interval '1 second' from grns.workers a
    where a.stopped_at is null and a.pid <> 0 and a.last_seen_at > now() - interval '1 day'
    union all
    select greatest($1::double precision, $3::double precision) * interval '1 second'
    where exists (select from grns.workers a where a.pid = 0)
),
shortest as (
    select min(l.lease) as lease from leases l
),
-- What ticks more seldom than that must not take its own pauses for outages.
bearable as (
    select greatest(s.lease, 3 * $2::double precision * interval '1 second') as silence from shortest s
)
update grns.reaper_state r
set hold_until = case
        when r.hold_until > now() then r.hold_until
        when r.last_tick_at < now() - b.silence or r.server_started_at <> pg_postmaster_start_time()
            then now() + coalesce(
                (select max(l.lease) from leases l where l.lease < 3 * (now() - r.last_tick_at)), s.lease)
        else r.hold_until
    end,
    last_tick_at = now(), reap_until = now() + b.silence, server_started_at = pg_postmaster_start_time()
from shortest s, bearable b
where r.id = 1
returning coalesce(r.hold_until > now(), false) as is_holding
