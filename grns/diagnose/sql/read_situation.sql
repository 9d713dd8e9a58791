-- Reads a task, whole, and what is around it, in one moment: the workers of its pool, its owner, what is queued before
-- it, and who has locked its row. A transaction that has locked or refers to a row is its `xmax`, as long as their transaction
-- is open (it may be a number of another kind where several do).
-- $1 id, $2 workspace, $3 up to how many tasks before it are counted, $4 up to how many task types are told
select now() as now,
    t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.status, t.attempt, t.max_attempts, t.uncounted_attempts,
    t.version, t.trace_id, t.created_at, t.updated_at, t.payload::text as payload, t.result::text as result,
    t.result_ref, t.owner_agent_id, t.lease_until, t.next_attempt_at,
    case when t.last_traceback is null then t.last_error
        else t.last_error || jsonb_build_object('traceback', t.last_traceback) end::text as last_error,
    t.fingerprint, t.idempotency_key, t.causation_id, t.cancel_requested_at, t.queued_at, t.started_at, t.finished_at,
    t.discarded_at, t.discarded_by, t.operation_id, t.waits_for, t.limits,
    grns.agent_of(t.route) as target_agent, grns.capabilities_of(t.route) as required_capabilities,
    null as title, null as description, '{}'::text[] as tags, null as metadata, null as created_by, null as backoff,
    r.percent as progress_percent, r.step as current_step, null as checkpoint_data,
    case t.status when 'running' then coalesce(r.completes_at, t.started_at + p.minutes * interval '1 minute')
        end as estimated_completion_at,
    coalesce(r.is_overdue, false) as is_overdue,
    (
        select json_agg(json_build_object('id', e.needs, 'name', e.name, 'outcome', e.outcome, 'ended_as', e.ended_as,
            'task_type', n.task_type, 'status', coalesce(n.status, k.status)))
        from (
            select e.* from grns.needs e
            where e.task_id = t.id and (e.ended_as is null or not grns.is_met(e.outcome, e.ended_as))
            order by e.ended_as nulls last, e.needs
            limit 4
        ) as e
        left join grns.tasks n on n.id = e.needs
        left join grns.workflows k on k.id = e.needs
    )::text as needs,
    case when t.waits_for = 'limit' then (
        select json_agg(json_build_object('key', k.key, 'max_tasks', coalesce(o.max_tasks, l.max_tasks), 'rate_count', l.rate_count,
            'rate_seconds', l.rate_seconds, 'paused_at', l.paused_at, 'paused_by', l.paused_by,
            'reason', l.pause_reason, 'held', (
                select count(*) from grns.tasks o
                where o.limits is not null and (o.queued_at is not null or o.lease_until is not null)
                    and o.workspace = t.workspace and k.key = any(o.limits)
            )))
        from unnest(t.limits) as k (key)
        left join grns.limits l on l.workspace = t.workspace and l.name = split_part(k.key, ':', 1)
        left join grns.limit_keys o on o.workspace = l.workspace and o.name = l.name
            and o.key = substr(k.key, length(l.name) + 2)
    ) end::text as limits_seen,
    case when t.waits_for = 'limit' then (
        select count(*)
        from (
            select from grns.tasks o
            where o.waits_for = 'limit' and o.workspace = t.workspace and o.limits = t.limits
                and (o.priority, o.id) < (t.priority, t.id)
            limit $3
        ) as b
    ) end as limited_ahead,
    w.open as needs_open, w.met as needs_met, w.required as needs_required,
    z.paused_at as task_paused_at, z.paused_by as task_paused_by, z.reason as task_pause_reason,
    f.id as held_by, f.paused_at as held_at, f.paused_by as held_actor, f.pause_reason as held_reason,
    t.attempt_limit, t.cancel_reason, t.cancel_actor,
    c.workers, c.serving, c.slots, c.running, c.silent_workers, c.silent_seconds,
    (
        select coalesce(array_agg(h.task_type order by h.task_type), '{}')
        from (
            select distinct n.task_type
            from grns.workers a
            cross join lateral unnest(a.task_types) as n (task_type)
            where a.workspace = t.workspace and a.agent_type = t.agent_type and a.stopped_at is null
                and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
            order by n.task_type
            limit $4
        ) as h
    ) as task_types,
    array(
        select distinct a.agent_type from grns.workers a
        where a.workspace = t.workspace and a.agent_type <> t.agent_type and a.stopped_at is null
            and t.task_type = any (a.task_types)
            and a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second'
        order by a.agent_type
        limit 3
    ) as served_by,
    o.host as owner_host, o.pid as owner_pid, o.version as owner_version, o.lease_seconds as owner_lease_seconds,
    extract(epoch from now() - o.last_seen_at)::double precision as owner_silent_seconds,
    coalesce(o.stopped_at is not null, false) as owner_has_stopped,
    (
        select count(*)
        from (
            select from generate_series(0, t.priority) as p (priority)
            cross join lateral (
                select from grns.tasks q
                where t.queued_at is not null and q.workspace = t.workspace and q.agent_type = t.agent_type
                    and q.priority = p.priority and q.queued_at is not null
                    and (p.priority < t.priority or q.queued_at < t.queued_at)
                order by q.queued_at
                limit $3
            ) as f
            limit $3
        ) as b
    ) as ahead,
    l.pid as lock_pid, extract(epoch from now() - s.xact_start)::double precision as lock_seconds,
    s.application_name as lock_name
from grns.tasks t
cross join lateral (
    select count(*) filter (where h.is_alive) as workers,
        count(*) filter (where h.is_alive and h.is_serving) as serving,
        coalesce(sum(a.concurrency) filter (where h.is_alive and h.is_serving), 0) as slots,
        coalesce(sum(a.running) filter (where h.is_alive and h.is_serving), 0) as running,
        count(*) filter (where not h.is_alive) as silent_workers,
        extract(epoch from now() - max(a.last_seen_at))::double precision as silent_seconds
    from grns.workers a
    cross join lateral (
        select a.last_seen_at > now() - greatest(a.lease_seconds, 15) * interval '1 second' as is_alive,
            t.task_type = any (a.task_types) as is_serving
    ) as h
    where a.workspace = t.workspace and a.agent_type = t.agent_type and a.stopped_at is null
) as c
left join lateral (
    select a.host, a.pid, a.version, a.lease_seconds, a.last_seen_at, a.stopped_at
    from grns.workers a
    where a.agent_id = t.owner_agent_id
    limit 1
) as o on true
left join lateral (
    select k.pid from pg_locks k
    where t.xmax <> '0' and k.locktype = 'transactionid' and k.transactionid = t.xmax and k.granted
    limit 1
) as l on true
left join pg_stat_activity s on s.pid = l.pid
left join grns.waits w on w.task_id = t.id
left join grns.progress p on p.task_id = t.id
left join lateral (
    select p.percent, p.step, p.completes_at, t.status = 'running' and p.overdue_seconds is not null as is_overdue
    where p.attempt = t.attempt
) as r on true
left join grns.task_pauses z on z.task_id = t.id and t.waits_for = 'pause'
left join grns.workflows f on f.id = w.workflow_id and f.ended_at is null
    and (f.paused_at is not null or f.cancel_requested_at is not null)
where t.id = $1 and t.workspace = $2
