-- Renews all leases of a worker: answers for each whether it holds, whether another attempt has
-- the row locked just now, or whether it is lost; and brings requests to cancel.
-- $1 ids, $2 attempts, $3 lease_ids, $4 lease in seconds, $5 workspaces
with held as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $5::text[]) with ordinality
        as w (id, attempt, lease_id, workspace, place)
),
locked as (
    select t.id, w.place
    from held w
    join grns.tasks t on t.id = w.id
    where t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
        and t.status = 'running'
    order by t.id
    for no key update of t skip locked
),
renewed as (
    update grns.tasks t
    set lease_until = now() + $4::double precision * interval '1 second', updated_at = now()
    from locked l
    where t.id = l.id
    returning l.place, t.cancel_requested_at
)
select r.place, 'renewed' as verdict, r.cancel_requested_at is not null as is_cancel_requested
from renewed r
union all
-- `not in` looks each up in a hash; a join of the two would compare each with each.
select w.place, case when t.id is not null then 'locked' else 'lost' end, false
from held w
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id
    and t.workspace = w.workspace and t.status = 'running'
where w.place not in (select r.place from renewed r)
