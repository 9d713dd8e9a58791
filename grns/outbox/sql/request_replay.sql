-- Asks the relay to publish a stretch of the log again. Without an id nothing was asked: its end is not behind its
-- beginning (`is_stretch`), or it begins where event handlers have forgotten what they handled.
-- $1 workspace, null for all, $2 patterns of kinds, $3 since then or, where null, $4 since so many seconds,
-- $5 until then or, where null, $6 until so many seconds ago, $7 for how many seconds handlers remember; null: whatever
with wanted as (
    select m.since, m.until, m.since < m.until and m.since < now() as is_stretch,
        m.since < now() - $7::double precision * interval '1 second' as is_forgotten
    from (select coalesce($3, now() - $4::double precision * interval '1 second') as since,
        coalesce($5, now() - $6::double precision * interval '1 second') as until) as m
),
asked as (
    insert into grns.replays (workspace, patterns, since, until)
    select $1, $2::text[], w.since, w.until
    from wanted w
    where w.is_stretch and w.is_forgotten is not true
    returning id
)
select a.id, w.is_stretch from wanted w left join asked a on true
