-- Warns of attempts that have taken longer than expected, once each, with an event. From then on they are ended if they report
-- nothing for too long (`end_stalled.sql`).
-- $1 by how many seconds, $2 for how many seconds they may report nothing from then on, $3 how many at most
with running as (  -- before the estimates: those of all that are queued are many
    select t.id, t.attempt, t.started_at
    from grns.tasks t
    where t.lease_until > now()  -- what lies before may be many dead entries; reap.sql takes what is alive there
),
overdue as (
    select r.id, r.attempt, e.completes_at
    from running r
    cross join lateral (
        select case when p.attempt = r.attempt then p.overdue_seconds end as overdue_seconds,
            p.attempt = r.attempt and p.has_stalled as has_stalled,
            coalesce(case when p.attempt = r.attempt then p.completes_at end,
                r.started_at + p.minutes * interval '1 minute') as completes_at
        from grns.progress p
        where p.task_id = r.id
        offset 0
    ) as e
    where e.completes_at < now() - $1::double precision * interval '1 second' and e.overdue_seconds is null
        and not e.has_stalled
    limit $3
),
locked as (  -- another reaper passes over them
    select t.id, t.workspace, t.attempt, t.version, t.trace_id, t.last_message_id, t.owner_agent_id, o.completes_at
    from overdue o
    join grns.tasks t on t.id = o.id
    where t.attempt = o.attempt and t.status = 'running'
    order by t.id
    for no key update of t skip locked
),
warned as (
    update grns.progress p
    set attempt = l.attempt, overdue_seconds = $2,
        percent = case when p.attempt = l.attempt then p.percent end,
        step = case when p.attempt = l.attempt then p.step end,
        completes_at = case when p.attempt = l.attempt then p.completes_at end,
        reported_at = case when p.attempt = l.attempt then p.reported_at end,
        logged = case when p.attempt = l.attempt then p.logged end,
        logged_step = case when p.attempt = l.attempt then p.logged_step end,
        stall_seconds = case when p.attempt = l.attempt then p.stall_seconds end,
        stalls_at = least(case when p.attempt = l.attempt then p.stalls_at end, now() + $2::double precision * interval '1 second'),
        has_stalled = false
    from locked l
    where p.task_id = l.id and (p.attempt <> l.attempt or p.overdue_seconds is null)
    returning l.*
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, payload)
    select w.version, gen_random_uuid(), w.workspace, w.id, 'evt.attempt.overdue', w.attempt, w.trace_id, w.last_message_id,
        json_build_object('task_id', w.id, 'agent_id', w.owner_agent_id, 'attempt', w.attempt,
            'estimated_completion_at', w.completes_at)
    from warned w
)
select w.id as task_id, w.owner_agent_id as agent_id, w.attempt, w.trace_id from warned w
