-- Gives up what a runner has taken, so that another one need not wait. $1 owner
update grns.operations o
set lease_until = '-infinity', owner = null, due_at = least(o.due_at, greatest(o.paced_at, now()))
where o.due_at is not null and o.owner = $1
returning o.id
