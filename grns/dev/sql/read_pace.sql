-- Reads how many tasks are still open, and how long the others took together: from the first claim to the last end.
select count(*) filter (where t.finished_at is null) as open,
    count(t.finished_at) as ended,
    coalesce(extract(epoch from max(t.finished_at) - min(t.started_at)), 0)::double precision as seconds
from grns.tasks t
