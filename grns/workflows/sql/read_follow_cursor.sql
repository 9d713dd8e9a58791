-- Reads how far the log has been followed, and whether task types have follow-ups.
select c.moves, c.low,
    array(select lower(r) from unnest(c.followed) as r) as done_from,
    array(select upper(r) from unnest(c.followed) as r) as done_to,
    exists (select from grns.task_types k where k.follow_ups <> '[]') as has_follow_ups
from grns.follow_cursor c
