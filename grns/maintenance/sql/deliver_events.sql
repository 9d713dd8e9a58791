-- Sends tasks the events that they wait for: see the function. $1 up to which number, $2 how many at most
select d.sent, d.has_more from grns.deliver_events($1, $2) d
