-- Reads where the log begins, and up to which number it is settled: relay and counter have each given up what is
-- missing below theirs.
select coalesce((select e.seq from grns.events e order by e.seq limit 1), 1) as first,
    greatest((select r.low from grns.relay_cursor r), (select c.low from grns.count_cursor c), 0) as settled
