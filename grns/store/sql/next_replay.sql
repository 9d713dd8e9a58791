-- Reads the oldest replay that has not ended, and how long ago its stretch of time begins and ends.
select r.id, r.workspace, r.patterns, r.since, r.until, r.first_seq, r.after_seq, r.up_to_seq, r.stored, r.duplicates,
    extract(epoch from now() - r.since)::double precision as since_seconds,
    extract(epoch from now() - r.until)::double precision as until_seconds
from grns.replays r
where r.ended_at is null
order by r.id
limit 1
