-- Reads the oldest replay that has not ended.
select r.id, r.workspace, r.patterns, r.since, r.until, r.first_seq, r.after_seq, r.up_to_seq, r.stored, r.duplicates
from grns.replays r
where r.ended_at is null
order by r.id
limit 1
