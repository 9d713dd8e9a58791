-- Reads in how many seconds the next schedule is due; null without one.
select extract(epoch from min(s.next_at) - now())::double precision as seconds from grns.schedules s where s.paused_at is null
