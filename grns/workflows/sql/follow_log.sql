-- Acts on what rows of the log tell of tasks that others need, or that have follow-ups, and moves the cursor: all of it, or
-- nothing where another follower leads by now. It reads current rows, and never trusts what an event says: whatever is read again, or late,
-- does no harm. A need is ended, or open again, as its task is now; the tasks that need it are queued, ended, or wait
-- again, as their counts are then, and as their workflow is paused or to be cancelled. A row that another session has locked is
-- noted, and tried with the next reading.
-- Where more needs would change than $11 allows, the cursor stays, and the same rows are read again.
-- Answers with the id of its transaction, how many tasks wait, whether there is more to do with the same rows, and each
-- task that was queued, or submitted: that one may wait for its limits.
-- Thousands of tasks may need one, and one thousands: `offset 0` has rows looked up for each that is found before, and
-- never compared with each of these.
-- $1 epoch, $2 moves so far, $3 lease in seconds, $4 and $5 bounds of the numbers to read, $6 how many they are, $7 all
-- up to here is read then, $8 and $9 bounds of what is read beyond, $10 kinds of events that end a task,
-- $11 needs at most, $12 tasks that may have ended besides, $13 tasks that may be decided besides
with held as (
    update grns.leases l set until = now() + $3::double precision * interval '1 second'
    where l.name = 'follower' and l.epoch = $1
    returning l.name
),
named as materialized (
    select n.task_id, n.kind, n.was
    from held
    cross join unnest($4::bigint[], $5::bigint[]) as s (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.task_id, e.kind, e.was from grns.events e
        where e.seq >= s.lower_seq and e.seq < s.upper_seq
        order by e.seq
        limit $6
    ) as n
    where exists (select from grns.waits)  -- a need that is committed later has an event of its own
),
-- What has ended or been opened again, and what those need that began to wait.
touched as (
    select n.task_id as id from named n
    where n.kind = any($10::text[]) or n.kind like 'evt.workflow.%'
        or (n.kind in ('evt.task.queued', 'evt.task.waiting') and n.was in ('d', 'f', 'c'))
    union
    select e.needs
    from named n
    cross join lateral (select e.needs from grns.needs e where e.task_id = n.task_id offset 0) as e
    where n.kind in ('evt.task.waiting', 'evt.workflow.started')
    union
    select s.id from held cross join unnest($12::text[]) as s (id)
),
-- With a workflow, all tasks that were added to it: it is sealed only once these are counted.
reached as (
    select o.id from touched o
    union
    select e.needs
    from touched o
    cross join lateral (select e.needs from grns.needs e where e.task_id = o.id and e.ended_as = 'added' offset 0) as e
),
-- What is decided though no need of it turns: tasks that an operation has redriven or that were resumed, those of a workflow
-- that was resumed or redriven, and what was left over.
asked as (
    select t.id, n.was = 'r' as has_suspended
    from named n
    cross join lateral (
        select o.id from grns.tasks o where o.id = n.task_id and o.status = 'waiting' and o.waits_for = 'tasks' offset 0
    ) as t
    where n.kind = 'evt.task.waiting' and n.was in ('d', 'f', 'c', 'w', 'r')
    union
    select e.needs, false
    from named n
    cross join lateral (select e.needs from grns.needs e where e.task_id = n.task_id offset 0) as e
    where n.kind in ('evt.workflow.resumed', 'evt.workflow.redriven')
    union
    select f.task_id, false from held cross join grns.follow_later f
    union
    select f.id, false from held cross join unnest($13::text[]) as f (id)
),
ends as (
    select e.place, e.task_id, e.needs, e.outcome, e.ended_as as before, s.ended_as
    from reached o
    cross join lateral (
        select e.*, e.ctid as place from grns.needs e where e.needs = o.id offset 0
    ) as e
    left join lateral (select t.status, t.last_message_id from grns.tasks t where t.id = o.id offset 0) as t on true
    left join lateral (select w.ended_by, w.is_skipped from grns.waits w where w.task_id = o.id offset 0) as w on true
    left join lateral (
        select k.status, k.sealed_at from grns.workflows k where k.id = o.id offset 0
    ) as k on true
    cross join lateral (
        select case
            when e.task_id = o.id then case when k.sealed_at is not null then 'skipped' end
            when k.status <> 'running' then k.status
            when k.status is not null then null
            when t.status is null then coalesce(nullif(e.ended_as, 'added'), 'deleted')  -- what was counted stays so
            when t.status = 'cancelled' and w.ended_by = t.last_message_id and w.is_skipped then 'skipped'
            when t.status in ('succeeded', 'failed', 'dead', 'cancelled') then t.status
        end as ended_as
    ) as s
    where s.ended_as is distinct from e.ended_as
    order by e.task_id, e.needs = e.task_id, e.needs  -- the seal of a workflow after its tasks
    limit $11
),
turned as (
    update grns.needs e set ended_as = n.ended_as
    from ends n
    where e.ctid = n.place  -- nothing else writes needs
    returning e.task_id, e.needs, e.outcome, n.before, e.ended_as
),
sums as (
    select u.task_id,
        count(*) filter (where u.ended_as is null) - count(*) filter (where u.before is null) as open,
        sum(grns.is_met(u.outcome, u.ended_as)::integer - grns.is_met(u.outcome, u.before)::integer) as met,
        sum(grns.is_broken(u.outcome, u.ended_as)::integer - grns.is_broken(u.outcome, u.before)::integer) as broken,
        count(*) filter (where u.before = 'added') as added,
        min(u.needs) filter (where u.ended_as is not null and not grns.is_met(u.outcome, u.ended_as)) as why,
        bool_or(u.is_asked) as is_asked, bool_or(u.has_suspended) as has_suspended
    from (
        select u.*, false as is_asked, false as has_suspended from turned u
        union all
        select a.id, null, null, null, null, true, a.has_suspended from asked a  -- adds nothing to the counts
    ) as u
    group by u.task_id
),
counted as (
    update grns.waits w
    set open = w.open + s.open, met = w.met + s.met, broken = w.broken + s.broken,
        required = w.required + s.added,
        ended_by = case when p.is_ended then gen_random_uuid() else w.ended_by end,
        is_skipped = case when p.is_ended then p.verdict = 'skipped' else w.is_skipped end
    from sums s
    cross join lateral (
        select o.ctid as place, v.verdict, v.verdict in ('dependency', 'skipped', 'workflow_cancelled') and t.is_waiting as is_ended
        from grns.waits o
        left join lateral (
            select k.paused_at is not null as is_paused, k.cancel_requested_at is not null as is_cancelled
            from grns.workflows k
            where k.id = o.workflow_id and k.ended_at is null
            offset 0
        ) as h on true
        left join lateral (
            select t.status = 'waiting' as is_waiting from grns.tasks t where t.id = o.task_id offset 0
        ) as t on true
        cross join lateral (
            select case
                -- some of its needs may not have been read yet; it is asked for again
                when s.is_asked and (select count(*) from ends) >= $11 then 'undecided'
                when o.met + s.met >= o.required then case
                    when h.is_cancelled then 'workflow_cancelled' when h.is_paused then 'waiting'
                    when o.run_at > now() then 'later' else 'queued' end
                when o.met + s.met + o.open + s.open >= o.required then
                    -- handlers that wait for each other: one that runs again finds that, and fails
                    case when s.has_suspended and (h.is_paused or h.is_cancelled) is not true
                        and grns.waits_for_task(o.task_id, o.task_id) then 'queued' else 'waiting' end
                when o.broken + s.broken > 0 then 'dependency'
                else 'skipped'
            end as verdict
        ) as v
        where o.task_id = s.task_id
        offset 0
    ) as p
    where w.ctid = p.place
    returning w.task_id, w.open, w.met, w.broken, w.required, w.run_at, w.ended_by, s.why, p.verdict
),
-- A workflow has ended when all of its tasks have, and goes on where one of them is redriven. One that was open when it was
-- to be cancelled has not succeeded, whatever its tasks have: they may be too few. Once, when as many have failed
-- as it allows, it is stopped, and its escalation is submitted, unless it is being cancelled.
ending as (
    select k.id, k.place, s.status, k.status <> s.status as is_changed, c.met, c.broken, c.required as total, s.is_reached,
        s.is_reached and c.open > 0 as is_stopped,
        h.is_told, h.is_told and k.escalation is not null as is_escalated
    from counted c
    cross join lateral (
        select o.*, o.ctid as place from grns.workflows o where o.id = c.task_id offset 0
    ) as k
    cross join lateral (
        select case when c.open > 0 then 'running' when c.broken = 0 and k.sealed_at is distinct from k.cancel_requested_at then 'succeeded'
            when k.cancel_requested_at is not null then 'cancelled' else 'failed' end as status,
            (k.stopped_at is null and (c.broken >= k.fail_count
                or (c.met + c.broken >= k.fail_least and c.broken >= k.fail_share * (c.met + c.broken)))) is true
                as is_reached
    ) as s
    cross join lateral (select s.is_reached and k.cancel_requested_at is null as is_told) as h
    where k.status <> s.status or s.is_reached
),
-- Not those that another session has locked, or has changed since: later.
kept as (
    select k.id, k.ctid as place
    from ending e
    join grns.workflows k on k.ctid = e.place
    for no key update of k skip locked
),
ended as (
    update grns.workflows k
    set status = e.status, ended_at = case when e.status <> 'running' then now() end,
        (paused_at, paused_by, pause_reason) = (select
            case when p.is_new then now() when p.is_kept then k.paused_at end,
            case when p.is_new then 'grns' when p.is_kept then k.paused_by end,
            case when p.is_new then 'too many of its tasks have failed' when p.is_kept then k.pause_reason end
            from (select e.is_stopped and k.fail_action = 'pause' and k.paused_at is null as is_new,
                e.status = k.status as is_kept) as p),
        cancel_requested_at = case when e.is_stopped and k.fail_action = 'cancel' then coalesce(k.cancel_requested_at, now())
            when e.status in (k.status, 'cancelled') then k.cancel_requested_at end,
        sealed_at = case when e.is_stopped and k.fail_action = 'cancel' then coalesce(k.sealed_at, now()) else k.sealed_at end,
        stopped_at = case when e.is_reached then now() else k.stopped_at end,
        escalation_task_id = case when e.is_escalated then grns.new_task_id() else k.escalation_task_id end,
        version = k.version + 1
    from ending e
    where k.ctid = e.place and k.id in (select l.id from kept l)
    returning k.*, e.total, e.met, e.broken, e.is_changed, e.is_told, e.is_stopped, e.is_escalated
),
escalated as (
    select k.escalation_task_id as id, k.workspace, k.escalation ->> 'agent_type' as agent_type
    from (select o.* from ended o where o.is_escalated offset 0) as k
    cross join lateral (
        select count(*) from grns.submit_tasks(array[k.escalation_task_id], array[k.workspace],
            array[k.escalation ->> 'task_type'], array[k.escalation ->> 'agent_type'],
            array[(k.escalation ->> 'priority')::smallint],
            array[k.escalation -> 'payload' || jsonb_build_object('workflow_id', k.id, 'workflow', k.name, 'total', k.total,
                'failed', k.broken, 'reason', 'too many tasks of the workflow have failed')],
            '{}', array[(k.escalation ->> 'max_attempts')::integer], '{}', array[k.trace_id], '{}', 'grns')
    ) as s
),
followed_up as (
    select f.*
    from held h
    cross join lateral grns.submit_follow_ups(case when h.name is not null then $4 end, $5, $6) as f  -- never for one that leads no more
    where (select count(*) from ends) < $11
),
stopping as (
    insert into grns.operations (workspace, action, filter, canary, reason, created_by, matched, is_exact)
    select k.workspace, 'cancel', 'status:queued,retry_wait,running,waiting workflow:' || k.id, false,
        'too many tasks of the workflow have failed', 'grns', k.total - k.met - k.broken, false
    from ended k
    where k.is_stopped and k.fail_action = 'cancel'
    returning *
),
-- What waits and need not any more, and what the follower has ended and may go on.
movable as (
    select t.id, t.place, t.status as was, t.last_message_id as led_here, d.verdict, d.run_at, d.why, d.ended_by
    from counted d
    cross join lateral (select t.*, t.ctid as place from grns.tasks t where t.id = d.task_id offset 0) as t
    cross join lateral (  -- as it was before this statement
        select w.ended_by from grns.waits w where w.task_id = d.task_id offset 0
    ) as w
    where (t.status = 'waiting' and t.waits_for = 'tasks' and d.verdict not in ('waiting', 'undecided'))
        or (t.status = 'cancelled' and t.last_message_id = w.ended_by
            and d.verdict in ('queued', 'waiting', 'later'))
),
locked as (
    select t.id, t.ctid as place, m.was, m.led_here, v.verdict, m.run_at,
        coalesce(m.why, (
            select min(e.needs) from (select o.* from grns.needs o where o.task_id = t.id offset 0) as e
            where e.ended_as is not null and not grns.is_met(e.outcome, e.ended_as)
        )) as why,
        case when v.verdict in ('dependency', 'skipped', 'workflow_cancelled') then m.ended_by
            else gen_random_uuid() end as event_id,
        case when v.verdict = 'queued' then 'queued' when v.verdict in ('later', 'waiting', 'limited') then 'waiting'
            else 'cancelled' end as target
    from movable m
    join grns.tasks t on t.ctid = m.place
    cross join lateral (
        select case when m.verdict = 'queued' and t.limits is not null then 'limited' else m.verdict end as verdict
    ) as v
    where t.id = m.id and t.last_message_id = m.led_here
    order by t.id
    for no key update of t skip locked
),
moved as (
    update grns.tasks t
    set status = l.target,
        waits_for = case l.verdict when 'later' then 'time' when 'waiting' then 'tasks' when 'limited' then 'limit' end,
        next_attempt_at = case l.verdict when 'later' then l.run_at end,
        queued_at = case l.target when 'queued' then now() end,
        queued_reason = case l.target when 'queued' then 'needs_met' else t.queued_reason end,
        finished_at = case l.target when 'cancelled' then now() end,
        cancel_requested_at = case l.target when 'cancelled' then now() end,
        cancel_reason = case l.target when 'cancelled' then l.verdict end, cancel_actor = null,
        uncounted_attempts = case l.was when 'cancelled' then t.attempt else t.uncounted_attempts end,
        updated_at = now(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.ctid = l.place  -- what was changed before it was locked is not found here, and tried again
    returning t.id, t.version, t.workspace, t.task_type, t.agent_type, t.priority, t.route, t.attempt, t.trace_id, t.status,
        t.waits_for, t.next_attempt_at, l.event_id, l.led_here, l.was, l.verdict, l.why
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id, was,
        task_type, payload)
    select m.version, m.event_id, m.workspace, m.id, 'evt.task.' || m.status, m.attempt,
        case m.status when 'queued' then grns.command_route(m.agent_type, m.priority, m.route) end, m.trace_id, m.led_here,
        left(m.was, 1)::"char", m.task_type,
        case m.status
            when 'queued' then json_build_object('task_id', m.id, 'task_type', m.task_type, 'agent_type', m.agent_type,
                'priority', m.priority, 'reason', 'needs_met')
            when 'waiting' then json_build_object('task_id', m.id, 'task_type', m.task_type,
                'agent_type', m.agent_type, 'priority', m.priority, 'waits_for', m.waits_for,
                'next_attempt_at', m.next_attempt_at)
            else json_build_object('task_id', m.id, 'task_type', m.task_type, 'agent_type', m.agent_type,
                'agent_id', null, 'attempt', m.attempt, 'reason', m.verdict, 'dependency', m.why, 'actor', null)
        end
    from moved m
    union all
    select k.version, gen_random_uuid(), k.workspace, k.id,
        'evt.workflow.' || w.word, null, null, k.trace_id, null,
        null, null,
        json_build_object('workflow_id', k.id, 'name', k.name, 'status', k.status, 'total', k.total,
            'succeeded', k.met, 'failed', k.broken, 'escalation_task_id', case when k.is_escalated then k.escalation_task_id end)
    from ended k
    cross join lateral (
        select 'threshold' as word where k.is_told
        union all
        select case k.status when 'running' then 'reopened' else k.status end where k.is_changed
    ) as w
    union all
    select 0, gen_random_uuid(), o.workspace, null, 'evt.operation.created', null, null, o.trace_id, null, null, null,
        json_build_object('operation_id', o.id::text, 'action', o.action, 'state', o.state, 'filter', o.filter,
            'matched', o.matched, 'reason', o.reason, 'actor', o.created_by)
    from stopping o
),
left_over as (
    select m.id from movable m where m.id not in (select v.id from moved v)
    union all
    select e.id from ending e where e.id not in (select k.id from ended k)
),
postponed as (
    insert into grns.follow_later (task_id)
    select o.id from left_over o
    on conflict do nothing
),
settled as (
    delete from grns.follow_later f
    using held
    where f.task_id not in (select o.id from left_over o) and (select count(*) from ends) < $11
),
cursor as (
    update grns.follow_cursor c
    set moves = c.moves + 1, low = $7,
        followed = (select coalesce(range_agg(int8range(b.lower_seq, b.upper_seq)), '{}')
            from unnest($8::bigint[], $9::bigint[]) as b (lower_seq, upper_seq)),
        updated_at = now()
    from held h
    where c.id = 1 and c.moves = $2 and (select count(*) from ends) < $11
)
select pg_current_xact_id()::text::bigint as xid, (select count(*) from ends) >= $11 as has_more,
    (select count(*) from left_over) as postponed,
    exists (select from grns.tasks t where t.waits_for = 'tasks')
        or exists (select from grns.workflows k where k.ended_at is null) as is_needed,
    exists (select from grns.task_types k where k.follow_ups <> '[]') as has_follow_ups,
    q.id, q.workspace, q.agent_type,
    -- a handler that waits for tasks counts anew what its task needs: its row may have been replaced
    (
        select count(*) from sums s
        cross join lateral (select w.task_id from grns.waits w where w.task_id = s.task_id offset 0) as w
    ) = (select count(*) from counted) or grns.refuse_stale() as is_counted
from held
left join (
    select m.id, m.workspace, m.agent_type from moved m where m.status = 'queued'
    union all
    select e.id, e.workspace, e.agent_type from escalated e
    union all
    select f.id, f.workspace, f.agent_type from followed_up f
) as q on true
