-- Reads how far the log has been followed.
select c.moves, c.low,
    array(select lower(r) from unnest(c.followed) as r) as done_from,
    array(select upper(r) from unnest(c.followed) as r) as done_to
from grns.follow_cursor c
