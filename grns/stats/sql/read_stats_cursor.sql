-- Reads how far the log has been counted.
select c.moves, c.low,
    array(select lower(r) from unnest(c.counted) as r) as done_from,
    array(select upper(r) from unnest(c.counted) as r) as done_to
from grns.count_cursor c
