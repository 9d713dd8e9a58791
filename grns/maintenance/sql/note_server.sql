-- Notes which server this is, and that it lives; returns the failover where it was another one before.
-- Any role may ask for all of it.
with here as (
    select (select c.system_identifier::text from pg_control_system() c) as system_identifier,
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint as timeline
),
known as (  -- who waits here sees what the one before has written: of two that ask, one is told
    select s.id, s.system_identifier, s.timeline, s.seen_at from grns.server s where s.id = 1 for update
),
noted as (
    insert into grns.failovers (last_seen_at, old_system_identifier, old_timeline, new_system_identifier, new_timeline)
    select k.seen_at, k.system_identifier, k.timeline, h.system_identifier, h.timeline
    from known k, here h
    where k.seen_at is not null and (k.system_identifier, k.timeline) <> (h.system_identifier, h.timeline)
    returning *
),
seen as (
    update grns.server s
    set system_identifier = h.system_identifier, timeline = h.timeline, seen_at = now()
    from known k, here h
    where s.id = k.id
)
select n.id, n.noticed_at, n.last_seen_at, n.old_system_identifier, n.old_timeline, n.new_system_identifier,
    n.new_timeline
from noted n
