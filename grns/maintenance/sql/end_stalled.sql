-- Takes the lease from attempts that have reported nothing and recorded no step for too long: reap.sql puts their tasks back, and
-- says why. If an attempt has reported or recorded something meanwhile, or its task is locked, it is looked at again later; one
-- that has ended is not looked at again. During a hold, as of reap.sql, nothing is taken.
-- $1 how many at most
with due as (
    select p.task_id, p.attempt, p.reported_at, p.stalls_at,
        least(p.stall_seconds, p.overdue_seconds) * interval '1 second' as patience
    from grns.progress p
    where p.stalls_at <= now() and (select coalesce(r.hold_until <= now(), true) and coalesce(r.reap_until > now(), true)
        from grns.reaper_state r where r.id = 1)
    order by p.stalls_at
    limit $1
    for no key update skip locked
),
seen as (
    select d.task_id, d.attempt, t.id is not null and d.patience is not null as is_watched,
        greatest(d.stalls_at, d.reported_at + d.patience, s.recorded_at + d.patience) as stalls_at
    from due d
    left join grns.tasks t on t.id = d.task_id and t.attempt = d.attempt and t.status = 'running'
    cross join lateral (
        select max(s.recorded_at) as recorded_at from grns.steps s where s.task_id = d.task_id and s.attempt = d.attempt) as s
),
locked as (
    select t.id, t.ctid as place
    from seen e
    join grns.tasks t on t.id = e.task_id
    where t.attempt = e.attempt and t.status = 'running' and e.is_watched and e.stalls_at <= now()
    order by t.id
    for no key update of t skip locked
),
ended as (
    update grns.tasks t
    set lease_id = gen_random_uuid(), lease_until = now()
    from locked l
    where t.ctid = l.place
    returning t.id, t.attempt, t.owner_agent_id as agent_id, t.trace_id
),
noted as (
    update grns.progress p
    set has_stalled = n.id is not null,
        stalls_at = case
            when n.id is null and e.is_watched then greatest(e.stalls_at, now() + interval '1 second')
        end
    from seen e
    left join ended n on n.id = e.task_id
    where p.task_id = e.task_id
)
select n.id, n.attempt, n.agent_id, n.trace_id from ended n
