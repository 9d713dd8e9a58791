-- Says in how many seconds a runner can take the next operation; null where there is none. $1 owner
select extract(epoch from min(
    greatest(o.due_at, case when o.owner is distinct from $1 then o.lease_until end)) - now())::double precision as seconds
from grns.operations o
where o.due_at is not null
