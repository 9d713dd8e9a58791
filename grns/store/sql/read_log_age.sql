-- Reads the first row of the log at or behind a number, with its age. $1 number
select e.seq, extract(epoch from now() - e.created_at)::double precision as age_seconds
from grns.events e
where e.seq >= $1
order by e.seq
limit 1
