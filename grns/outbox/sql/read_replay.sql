-- Reads how far a replay is. $1 its number
select r.id, r.workspace, r.since, r.until, r.started_at, r.ended_at, r.first_seq, r.after_seq, r.up_to_seq, r.stored,
    r.duplicates, r.outcome
from grns.replays r
where r.id = $1
