-- Asks the relay to publish a stretch of the log again; no row where its end is not behind its beginning.
-- $1 workspace, null for all, $2 patterns of kinds, $3 since then or, where null, $4 since so many seconds,
-- $5 until then or, where null, $6 until so many seconds ago
insert into grns.replays (workspace, patterns, since, until)
select $1, $2::text[], m.since, m.until
from (select coalesce($3, now() - $4::double precision * interval '1 second') as since,
    coalesce($5, now() - $6::double precision * interval '1 second') as until) as m
where m.since < m.until and m.since < now()
returning id
