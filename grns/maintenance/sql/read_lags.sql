-- Says for how long what should have gone on has waited, in seconds, 0 where nothing waits: the oldest task that is
-- due and not queued, the schedule that is due and not decided, the oldest lease that is over and not reaped, the oldest row of
-- the log that is not published, that is not counted, and that is not followed; the tasks that no admitter admits; and the question that no person has looked at. Each is one
-- step into an index: while a number is missing, what lies beyond it is published, counted and followed, and is stepped over.
-- Of tasks that are due, and of leases that are over, it says since when, and when it looked.
-- $1 from which time on tasks are due, $2 from which time on leases are over (null: from the first): what lies before may be many
-- dead entries
with readers as (
    select 'relay' as reader, c.low, c.published as beyond from grns.relay_cursor c
    union all
    select 'stats', c.low, c.counted from grns.count_cursor c
    union all
    select 'follower', c.low, c.followed from grns.follow_cursor c
),
unread as (
    select r.reader, extract(epoch from now() - o.created_at)::double precision as seconds
    from readers r
    cross join lateral (
        select e.created_at
        from unnest(int8multirange(int8range(r.low, null, '()')) - r.beyond) as s (span)
        cross join lateral (
            select e.created_at from grns.events e
            where e.seq >= lower(s.span) and e.seq < coalesce(upper(s.span), 9223372036854775807)
            order by e.seq
            limit 1
        ) as e
        limit 1
    ) as o
)
select now() as read_at,
    (select min(t.next_attempt_at) from grns.tasks t
        where t.next_attempt_at <= now() and t.next_attempt_at >= coalesce($1::timestamptz, '-infinity')) as due_at,
    (select min(t.lease_until) from grns.tasks t
        where t.lease_until <= now() and t.lease_until >= coalesce($2::timestamptz, '-infinity')) as lapsed_at,
    coalesce(extract(epoch from now() - (
        select min(s.next_at) from grns.schedules s where s.paused_at is null and s.next_at <= now()
    )), 0)::double precision as undecided_seconds,
    coalesce((select u.seconds from unread u where u.reader = 'relay'), 0) as unpublished_seconds,
    coalesce((select u.seconds from unread u where u.reader = 'stats'), 0) as uncounted_seconds,
    coalesce((select u.seconds from unread u where u.reader = 'follower'), 0) as unfollowed_seconds,
    -- no admitter leads, though tasks wait for room
    coalesce(extract(epoch from now() - (
        select greatest(l.until, t.updated_at)
        from grns.leases l
        cross join lateral (
            select o.updated_at from grns.tasks o where o.waits_for = 'limit' order by o.workspace, o.limits limit 1
        ) as t
        where l.name = 'admitter' and l.until < now()
    )), 0)::double precision as unadmitted_seconds,
    coalesce(extract(epoch from now() - (
        select q.asked_at
        from grns.questions q
        join grns.tasks t on t.id = q.task_id
        where q.state = 'open' and q.seen_at is null and t.finished_at is null and coalesce(q.due_at > now(), true)
        order by q.asked_at
        limit 1
    )), 0)::double precision as unseen_seconds
