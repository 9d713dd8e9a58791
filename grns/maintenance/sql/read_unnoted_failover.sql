-- Says whether this is another server than the one that was noted last, and notes nothing: no row where it is the
-- same, where none was ever noted, or where it cannot tell its timeline (a standby, or something like Postgres).
select null::bigint as id, now() as noticed_at, s.seen_at as last_seen_at, s.system_identifier as old_system_identifier,
    s.timeline as old_timeline, h.system_identifier as new_system_identifier, h.timeline as new_timeline
from grns.server s
cross join (
    select (select c.system_identifier::text from pg_control_system() c) as system_identifier,
        grns.timeline() as timeline
) as h
where s.id = 1 and s.seen_at is not null and h.timeline <> 0
    and (s.system_identifier, s.timeline) <> (h.system_identifier, h.timeline)
