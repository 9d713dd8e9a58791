-- Reads the traces that daemons leave: who leads, how old the oldest row is that is not published and that is not
-- counted, when reapers and janitors looked last, and for how long leases have been over, tasks due and operations
-- waiting that no service has processed. Each look reads one row of one index. $1 a number of the log, null for none
select lr.until > now() as relay_has_leader, lr.owner as relay_owner, c.low as published_up_to, s.last_value as log_high,
    coalesce(extract(epoch from clock_timestamp() - u.created_at), 0)::double precision as lag_seconds,
    $1::bigint is null or $1 <= c.low or c.published @> $1::bigint as is_published,
    lk.until > now() as stats_has_leader, k.low as counted_up_to,
    coalesce(extract(epoch from clock_timestamp() - n.created_at), 0)::double precision as uncounted_seconds,
    extract(epoch from now() - r.last_tick_at)::double precision as reaped_seconds_ago,
    coalesce(r.reap_until < now(), true) as is_reaper_late,
    coalesce(greatest(extract(epoch from r.hold_until - now()), 0), 0)::double precision as reaper_holds_seconds,
    coalesce(greatest(extract(epoch from now() - (
        select t.lease_until from grns.tasks t where t.lease_until < now() order by t.lease_until limit 1
    )), 0), 0)::double precision as lapsed_seconds,
    coalesce(greatest(extract(epoch from now() - (
        select t.next_attempt_at from grns.tasks t
        where t.next_attempt_at < now() order by t.next_attempt_at limit 1
    )), 0), 0)::double precision as overdue_seconds,
    coalesce(greatest(extract(epoch from now() - (
        select greatest(o.due_at, o.paced_at, o.lease_until) from grns.operations o
        where o.due_at < now() order by o.due_at limit 1
    )), 0), 0)::double precision as operations_late_seconds,
    extract(epoch from now() - v.seen_at)::double precision as janitor_seconds_ago
from grns.relay_cursor c
cross join grns.count_cursor k
join grns.leases lr on lr.name = 'relay'
join grns.leases lk on lk.name = 'stats'
cross join grns.reaper_state r
cross join grns.server v
cross join grns.events_seq s
left join lateral (
    select e.seq, e.created_at
    from unnest(int8multirange(int8range(c.low, null, '()')) - c.published) as m (span)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.seq, e.created_at from grns.events e
        where e.seq >= lower(m.span) and e.seq < coalesce(upper(m.span), 9223372036854775807)
        order by e.seq
        limit 1
    ) as e
    order by e.seq
    limit 1
) as u on true
left join lateral (
    select e.seq, e.created_at
    from unnest(int8multirange(int8range(k.low, null, '()')) - k.counted) as m (span)
    cross join lateral (
        select e.seq, e.created_at from grns.events e
        where e.seq >= lower(m.span) and e.seq < coalesce(upper(m.span), 9223372036854775807)
        order by e.seq
        limit 1
    ) as e
    order by e.seq
    limit 1
) as n on true
