-- Takes the operation that is due first, for a while: the runner that had it before can move nothing more. It is behind the
-- others from now on, until a batch says when it is due: one that fails each time does not hold up others.
-- $1 owner, $2 lease in seconds, $3 when it is due again unless a batch says so, in seconds
with chosen as (
    select o.id
    from grns.operations o
    where o.due_at <= now() and (o.lease_until < now() or o.owner = $1)
    order by o.due_at
    limit 1
    for update skip locked
)
update grns.operations o
set epoch = o.epoch + 1, owner = $1, lease_until = now() + $2::double precision * interval '1 second',
    due_at = now() + $3::double precision * interval '1 second'
from chosen c
where o.id = c.id
returning o.id, o.epoch, o.workspace, o.action, o.filter, o.canary, o.rate_per_minute, o.patch::text as patch,
    o.created_at, extract(epoch from now() - o.created_at)::double precision as age_seconds, o.state, o.page_cursor,
    o.is_exhausted, o.canary_task_id, o.moved
