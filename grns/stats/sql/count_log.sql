-- Counts rows of the log, and with them moves the cursor: all of it or nothing, and nothing where another counter leads
-- by now, or where not all of these rows are there (a server that was failed over to may lack some). The counts are
-- exact whenever it ends in between. Returns its transaction's id: a transaction that took a number of the log before has a
-- lower one; and how old the latest of the rows is.
-- $1 epoch, $2 moves so far, $3 lease in seconds, $4 and $5 bounds of the numbers to count, $6 how many they are,
-- $7 all up to here is counted then, $8 and $9 bounds of what is counted beyond, $10 kinds of events that move a task,
-- $11 its status after each, $12 letters, $13 the status that each of them means
with named as (
    select e.*
    from unnest($4::bigint[], $5::bigint[]) as s (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.seq, e.version, e.workspace, e.task_id, e.task_type, e.kind, e.attempt, e.was, e.created_at,
            case e.kind when 'evt.task.claimed' then (e.payload ->> 'queued_ms')::bigint
                when 'evt.task.completed' then (e.payload ->> 'duration_ms')::bigint end as ms,
            -- of the others nothing is asked: a dead letter's may be large
            case when e.kind in ('evt.task.failed', 'evt.task.dead', 'evt.task.discarded') or e.was in ('d', 'f')
                then e.payload end as payload,
            -- What goes well is counted in groups. Each of the others is looked at.
            (e.kind in ('evt.task.failed', 'evt.task.retry_scheduled', 'evt.task.dead', 'evt.task.discarded')
                or e.was in ('d', 'f') or (e.task_type is null and e.kind = any($10::text[]))) is true as is_special
        from grns.events e
        where e.seq >= s.lower_seq and e.seq < s.upper_seq
        order by e.seq
        limit $6
    ) as e
),
held as (
    update grns.leases l set until = now() + $3::double precision * interval '1 second'
    where l.name = 'stats' and l.epoch = $1
    returning l.name
),
moved as (
    update grns.count_cursor c
    set moves = c.moves + 1, low = $7,
        counted = (select coalesce(range_agg(int8range(b.lower_seq, b.upper_seq)), '{}')
            from unnest($8::bigint[], $9::bigint[]) as b (lower_seq, upper_seq)),
        updated_at = now()
    from held h
    where c.id = 1 and c.moves = $2 and (select count(*) from named) = $6
    returning c.id
),
steps as (
    select n.seq, n.workspace, n.task_id, n.kind, n.was, n.created_at, n.payload,
        ($11::text[])[array_position($10::text[], n.kind)] as after,
        -- A task that is not there any more has told its type in its first event.
        coalesce(n.task_type, t.task_type, (
            select max(e.payload ->> 'task_type') from grns.events e
            where e.task_id = n.task_id and e.version = 1 and e.kind in ('evt.task.queued', 'evt.task.waiting')
        ), 'unknown') as task_type,
        case
            when n.kind in ('evt.task.claimed', 'evt.task.completed') then n.ms
            when t.attempt is distinct from n.attempt then null  -- another one has begun since
            when n.kind in ('evt.task.failed', 'evt.task.retry_scheduled')
                or (n.kind = 'evt.task.dead' and n.payload ->> 'error_class' not in ('lease_expired', 'stalled', 'released'))
                then greatest(0, date_part('epoch', n.created_at - t.started_at) * 1000)::bigint
        end as ms
    from moved
    cross join named n
    left join lateral (
        select o.task_type, o.attempt, o.started_at from grns.tasks o where o.id = n.task_id limit 1
    ) as t on true
    where n.is_special and n.kind = any($10::text[])
),
moves as (
    select g.workspace, g.minute, g.task_type, g.kind, g.count, g.ms_count, g.ms_sum,
        ($13::text[])[array_position($12::text[], g.was::text)] as before,
        ($11::text[])[array_position($10::text[], g.kind)] as after
    from (
        select n.workspace, date_bin(interval '1 minute', n.created_at, timestamptz 'epoch') as minute, n.task_type,
            n.kind, n.was, count(*) as count, count(n.ms) as ms_count, coalesce(sum(n.ms), 0) as ms_sum
        from moved
        cross join named n
        where not n.is_special
        group by n.workspace, 2, n.task_type, n.kind, n.was
        union all
        select s.workspace, date_bin(interval '1 minute', s.created_at, timestamptz 'epoch') as minute, s.task_type,
            s.kind, s.was, count(*) as count, count(s.ms) as ms_count, coalesce(sum(s.ms), 0) as ms_sum
        from steps s
        group by s.workspace, 2, s.task_type, s.kind, s.was
    ) as g
    where g.kind = any($10::text[])
),
deleted as (
    delete from grns.deleted_tasks d
    using moved
    where d.id = any(array(select o.id from grns.deleted_tasks o order by o.id limit 1000))
    returning d.workspace, d.task_type, d.status, d.fingerprint, d.count
),
tasks as (
    insert into grns.task_counts as k (workspace, task_type, status, count)
    select c.workspace, c.task_type, c.status, sum(c.count)
    from (
        select s.workspace, s.task_type, m.status, m.count
        from moves s
        cross join lateral (values (s.before, -s.count), (s.after, s.count)) as m (status, count)
        union all
        select d.workspace, d.task_type, d.status, -d.count from deleted d
    ) as c
    where c.status is not null
    group by c.workspace, c.task_type, c.status
    having sum(c.count) <> 0
    on conflict (workspace, task_type, status) do update set count = k.count + excluded.count
),
minutes as (
    insert into grns.task_minutes as k (workspace, minute, task_type, submitted, claimed, succeeded, failed, dead,
        cancelled, retried, expired, released, redriven, queue_count, queue_ms_sum, run_count, run_ms_sum)
    select s.workspace, s.minute, s.task_type,
        coalesce(sum(s.count) filter (where s.before is null), 0),
        coalesce(sum(s.count) filter (where s.after = 'running'), 0),
        coalesce(sum(s.count) filter (where s.after = 'succeeded'), 0),
        coalesce(sum(s.count) filter (where s.after = 'failed'), 0),
        coalesce(sum(s.count) filter (where s.after = 'dead'), 0),
        coalesce(sum(s.count) filter (where s.after = 'cancelled'), 0),
        coalesce(sum(s.count) filter (where s.kind = 'evt.task.retry_scheduled'), 0),
        coalesce(sum(s.count) filter (where s.kind = 'evt.task.lease_expired'), 0),
        coalesce(sum(s.count) filter (where s.kind = 'evt.task.released'), 0),
        coalesce(sum(s.count) filter (where s.before in ('dead', 'failed', 'cancelled')), 0),
        coalesce(sum(s.ms_count) filter (where s.kind = 'evt.task.claimed'), 0),
        coalesce(sum(s.ms_sum) filter (where s.kind = 'evt.task.claimed'), 0),
        coalesce(sum(s.ms_count) filter (where s.kind <> 'evt.task.claimed'), 0),
        coalesce(sum(s.ms_sum) filter (where s.kind <> 'evt.task.claimed'), 0)
    from moves s
    group by s.workspace, s.minute, s.task_type
    on conflict (workspace, minute, task_type) do update
    set submitted = k.submitted + excluded.submitted, claimed = k.claimed + excluded.claimed,
        succeeded = k.succeeded + excluded.succeeded, failed = k.failed + excluded.failed,
        dead = k.dead + excluded.dead, cancelled = k.cancelled + excluded.cancelled,
        retried = k.retried + excluded.retried, expired = k.expired + excluded.expired,
        released = k.released + excluded.released, redriven = k.redriven + excluded.redriven,
        queue_count = k.queue_count + excluded.queue_count, queue_ms_sum = k.queue_ms_sum + excluded.queue_ms_sum,
        run_count = k.run_count + excluded.run_count, run_ms_sum = k.run_ms_sum + excluded.run_ms_sum
),
failures as (
    select s.seq, s.workspace, s.payload ->> 'fingerprint' as fingerprint, s.task_id, s.task_type, s.created_at,
        s.payload ->> 'agent_id' as agent_id, coalesce(s.payload ->> 'error_class', '') as error_class,
        coalesce(left(s.payload -> 'error' ->> 'message', 1000), '') as message
    from steps s
    where s.after in ('failed', 'dead') and s.payload ->> 'fingerprint' is not null
),
-- What each issue has got, and what of it is not dead any more: opened again, discarded, deleted.
touched as (
    select u.workspace, u.fingerprint, sum(u.seen) as seen, sum(u.open) as open,
        min(u.created_at) as first_seen, max(u.created_at) as last_seen,
        (array_agg(u.error_class order by u.seq desc nulls last))[1] as error_class,
        (array_agg(u.message order by u.seq desc nulls last))[1] as message,
        (array_agg(u.task_id order by u.seq desc nulls last))[1] as task_id
    from (
        select f.workspace, f.fingerprint, 1 as seen, 1 as open, f.created_at, f.seq, f.error_class, f.message,
            f.task_id
        from failures f
        union all
        select n.workspace, n.payload ->> 'fingerprint', 0, -1, null, null, null, null, null
        from moved
        cross join named n
        where n.is_special and (n.kind = 'evt.task.discarded' or n.was in ('d', 'f'))
        union all
        select d.workspace, d.fingerprint, 0, -d.count, null, null, null, null, null from deleted d
    ) as u
    where u.fingerprint is not null
    group by u.workspace, u.fingerprint
),
issues as (
    insert into grns.issues as i (workspace, fingerprint, error_class, message, sample_task_id, first_seen, last_seen,
        total, open_count)
    select t.workspace, t.fingerprint, coalesce(t.error_class, ''), coalesce(t.message, ''), coalesce(t.task_id, ''),
        coalesce(t.first_seen, now()), coalesce(t.last_seen, now()), t.seen, t.open
    from touched t
    left join lateral (
        select true as is_known from grns.issues o
        where o.workspace = t.workspace and o.fingerprint = t.fingerprint
        limit 1
    ) as k on true
    -- one that is forgotten does not come back where something of it is opened again
    where t.seen > 0 or k.is_known
    on conflict (workspace, fingerprint) do update
    set error_class = case when excluded.total > 0 then excluded.error_class else i.error_class end,
        message = case when excluded.total > 0 then excluded.message else i.message end,
        sample_task_id = case when excluded.total > 0 then excluded.sample_task_id else i.sample_task_id end,
        last_seen = case when excluded.total > 0 then greatest(i.last_seen, excluded.last_seen) else i.last_seen end,
        first_seen = case when excluded.total > 0 then least(i.first_seen, excluded.first_seen) else i.first_seen end,
        total = i.total + excluded.total, open_count = i.open_count + excluded.open_count,
        -- seen again: what happened before it was resolved does not count
        (state, state_by, state_at, version) = (
            select case when r.is_back then 'regressed' else i.state end,
                case when not r.is_back then i.state_by end,
                case when r.is_back then now() else i.state_at end, i.version + r.is_back::integer
            from (
                select i.state = 'resolved' and excluded.total > 0 and excluded.last_seen > i.state_at as is_back
            ) as r)
    returning i.workspace, i.fingerprint, i.state, i.state_at = now() as has_turned, i.error_class, i.sample_task_id
),
hours as (
    insert into grns.issue_hours as k (workspace, fingerprint, hour, count)
    select f.workspace, f.fingerprint, date_bin(interval '1 hour', f.created_at, timestamptz 'epoch') as hour, count(*)
    from failures f
    group by f.workspace, f.fingerprint, 3
    on conflict (workspace, fingerprint, hour) do update set count = k.count + excluded.count
),
features as (
    select f.workspace, f.fingerprint, v.facet, v.value, count(*) as count
    from failures f
    left join lateral (
        select o.version from grns.workers o where o.agent_id = f.agent_id limit 1
    ) as a on true
    cross join lateral (values ('task_type', f.task_type), ('worker', f.agent_id), ('version', a.version),
        ('error', left(f.message, 200))) as v (facet, value)
    where v.value is not null
    group by f.workspace, f.fingerprint, v.facet, v.value
),
-- Of each facet the first values are told apart.
bounded as (
    select f.workspace, f.fingerprint, f.facet, f.count,
        case when k.value is not null or 20 >= (
                select count(*) from grns.issue_facets o
                where o.workspace = f.workspace and o.fingerprint = f.fingerprint and o.facet = f.facet
                    and o.value <> 'other'
            ) + row_number() over (partition by f.workspace, f.fingerprint, f.facet, k.value is null
                order by f.count desc, f.value)
            then f.value else 'other' end as value
    from features f
    left join grns.issue_facets k on k.workspace = f.workspace and k.fingerprint = f.fingerprint and k.facet = f.facet
        and k.value = f.value
),
facets as (
    insert into grns.issue_facets as k (workspace, fingerprint, facet, value, count)
    select b.workspace, b.fingerprint, b.facet, b.value, sum(b.count)
    from bounded b
    group by b.workspace, b.fingerprint, b.facet, b.value
    on conflict (workspace, fingerprint, facet, value) do update set count = k.count + excluded.count
),
-- A new issue, and one that is back, are events themselves.
logged as (
    insert into grns.events (version, workspace, kind, trace_id, payload)
    select 0, i.workspace, 'evt.issue.changed', replace(gen_random_uuid()::text, '-', ''),
        json_build_object('fingerprint', i.fingerprint, 'state', i.state,
            'was', case i.state when 'regressed' then 'resolved' end, 'error_class', i.error_class,
            'sample_task_id', i.sample_task_id, 'actor', null)
    from issues i
    where i.has_turned
)
select pg_current_xact_id()::text::bigint as xid,
    (select extract(epoch from now() - max(n.created_at))::double precision from named n) as age_seconds
from moved
