-- Reads tasks as they are. $1 ids, $2 workspace
select t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.status, t.attempt,
    coalesce(t.attempt_limit, t.max_attempts) as max_attempts, t.uncounted_attempts,
    t.version, t.trace_id, t.created_at, t.updated_at, t.payload::text as payload, t.result::text as result,
    t.result_ref, t.owner_agent_id, t.lease_until, t.next_attempt_at,
    case when t.last_traceback is null then t.last_error
        else t.last_error || jsonb_build_object('traceback', t.last_traceback) end::text as last_error,
    t.fingerprint, t.idempotency_key, t.causation_id, t.cancel_requested_at, t.queued_at, t.started_at, t.finished_at,
    t.discarded_at, t.discarded_by, t.operation_id, t.waits_for, t.limits,
    grns.agent_of(t.route) as target_agent, grns.capabilities_of(t.route) as required_capabilities,
    l.title, l.description, coalesce(l.tags, '{}') as tags, l.metadata::text as metadata, l.created_by, l.backoff::text as backoff,
    r.percent as progress_percent, r.step as current_step, p.checkpoint::text as checkpoint_data,
    case t.status when 'running' then coalesce(r.completes_at, t.started_at + p.minutes * interval '1 minute')
        end as estimated_completion_at,
    coalesce(r.is_overdue, false) as is_overdue
from unnest($1::text[]) as w (id)
join grns.tasks t on t.id = w.id
left join grns.labels l on l.task_id = t.id
left join grns.progress p on p.task_id = t.id
left join lateral (  -- not of an earlier attempt
    select p.percent, p.step, p.completes_at, t.status = 'running' and p.overdue_seconds is not null as is_overdue
    where p.attempt = t.attempt
) as r on true
where t.workspace = $2
