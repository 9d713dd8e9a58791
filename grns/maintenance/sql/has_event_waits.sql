-- Says whether a task waits for an event.
select exists (select from grns.event_waits) as has_waits
