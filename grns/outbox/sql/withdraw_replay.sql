-- Ends a replay before it is done. $1 its number
update grns.replays r set ended_at = now(), outcome = 'withdrawn'
where r.id = $1 and r.ended_at is null
returning r.id
