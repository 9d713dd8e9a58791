-- Renews all leases of a worker: answers for each whether it holds, whether somebody else has
-- the row locked just now, or whether it is lost; and brings requests to cancel.
-- $1 ids, $2 attempts, $3 lease_ids, $4 lease in seconds
with held as (
    select h.* from unnest($1::text[], $2::integer[], $3::uuid[]) with ordinality as h (id, attempt, lease_id, place)
),
locked as (
    select t.id, t.lease_id
    from held h
    join grns.tasks t on t.id = h.id
    where t.attempt = h.attempt and t.lease_id = h.lease_id and t.status = 'running'
    order by t.id
    for update of t skip locked
),
renewed as (
    update grns.tasks t
    set lease_until = now() + $4::double precision * interval '1 second', updated_at = now()
    from locked l
    where t.id = l.id
    returning t.id, t.lease_id, t.cancel_requested_at
)
select h.place,
    case when r.id is not null then 'renewed' when t.id is not null then 'locked' else 'lost' end as verdict,
    r.cancel_requested_at is not null as is_cancel_requested
from held h
left join renewed r on r.id = h.id and r.lease_id = h.lease_id
left join grns.tasks t on t.id = h.id and t.attempt = h.attempt and t.lease_id = h.lease_id and t.status = 'running'
