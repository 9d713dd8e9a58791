-- Ends attempts: writes the outcome of each, if the attempt still owns its task, and answers for each
-- with the task's new status, `lost`, or `locked` where another transaction has the row locked now.
-- $1 ids, $2 attempts, $3 lease_ids, $4 event ids, $5 verbs (succeed, fail, retry, snooze, cancel), $6 results,
-- $7 errors (may have a `traceback`: it is stored apart, and events are without it), $8 error classes,
-- $9 fingerprints, $10 backoffs in seconds, $11 causation_ids, $12 workspaces, $13 whether a task's own backoff goes before that
-- JSON is sent as text: the connection may be a handler's, who has taught it to encode values.
-- A snoozed attempt does not count, however many there were; nor does one that has recorded a step and is retried.
-- A result of up to 4096 bytes is in the event, too, as the text that came; null is left out.
-- The time is the statement's: in a handler's transaction, now() is when the handler opened it.
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[]::jsonb[],
                $8::text[], $9::text[], $10::double precision[], $11::uuid[], $12::text[], $13::boolean[])
        as w (id, attempt, lease_id, event_id, verb, result, error, error_class, fingerprint, backoff, causation_id,
              workspace, is_usual)
),
locked as (
    select t.id, t.ctid as place, w.event_id, w.result, w.error, w.error_class, w.fingerprint,
        case when w.is_usual then coalesce(grns.backoff_seconds(t.id, t.attempt - t.uncounted_attempts), w.backoff) else w.backoff end as backoff,
        w.causation_id, t.owner_agent_id as agent_id,
        w.verb = 'snooze' and t.cancel_requested_at is null as is_snoozed, s.is_spared,
        case
            when w.verb = 'succeed' then 'succeeded'
            when w.verb = 'fail' then 'failed'
            when t.cancel_requested_at is not null then 'cancelled'
            when w.verb <> 'snooze' and not s.is_spared and t.attempt - t.uncounted_attempts >= t.attempt_limit then 'dead'
            else 'retry_wait'
        end as target
    from wanted w
    join grns.tasks t on t.id = w.id
    cross join lateral (
        select case when w.verb = 'retry' then grns.has_recorded(t.id, t.attempt) else false end as is_spared
    ) as s
    where t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
        and t.status = 'running'
    order by t.id
    for no key update of t skip locked
),
finished as (
    update grns.tasks t
    set status = l.target, owner_agent_id = null, lease_id = null, lease_until = null,
        next_attempt_at = case l.target when 'retry_wait'
            then statement_timestamp() + l.backoff * interval '1 second' end,
        uncounted_attempts = t.uncounted_attempts + (l.is_snoozed or l.is_spared)::integer,
        result = case l.target when 'succeeded' then l.result::jsonb end,
        result_ref = case l.target when 'succeeded' then 'db://tasks/' || t.id end,
        last_error = coalesce(l.error - 'traceback', t.last_error),
        last_traceback = case when l.error is null then t.last_traceback else l.error ->> 'traceback' end,
        fingerprint = coalesce(l.fingerprint, t.fingerprint),
        finished_at = case l.target when 'retry_wait' then null else statement_timestamp() end,
        updated_at = statement_timestamp(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.ctid = l.place  -- no transaction moves a locked row; one that was moved just before is `locked`, below
    returning t.id, t.workspace, t.task_type, t.agent_type, t.status, t.attempt, t.attempt_limit, t.version,
        t.trace_id, t.payload, t.result_ref, t.last_error, t.fingerprint, t.next_attempt_at, t.cancel_reason,
        t.cancel_actor, t.created_at, t.started_at, l.event_id, l.error_class, l.backoff, l.agent_id, l.causation_id,
        l.is_snoozed, l.result as answer
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was,
        actor, task_type, payload)
    select f.version, f.event_id, f.workspace, f.id,
        case f.status
            when 'succeeded' then 'evt.task.completed'
            when 'retry_wait' then case when f.is_snoozed then 'evt.task.snoozed' else 'evt.task.retry_scheduled' end
            else 'evt.task.' || f.status
        end,
        f.attempt, f.trace_id, f.causation_id, 'r'::"char",
        case f.status when 'cancelled' then f.cancel_actor end, f.task_type,
        case f.status
            -- put together by hand: json_build_object looks up how to write each of its arguments, for each row
            when 'succeeded' then ('{"task_id":"' || f.id || '","task_type":"' || f.task_type
                || '","agent_type":"' || f.agent_type || '","agent_id":' || to_json(f.agent_id)
                || ',"attempt":' || f.attempt
                || case
                    when f.answer = 'null' then ''
                    when octet_length(f.answer) <= 4096 then ',"result":' || f.answer
                    else ',"result_omitted":true'
                end
                || ',"result_ref":"' || f.result_ref
                || '","duration_ms":'
                || greatest(0, round(extract(epoch from statement_timestamp() - f.started_at) * 1000)) || '}')::json
            when 'retry_wait' then case
                when f.is_snoozed then json_build_object('task_id', f.id, 'agent_id', f.agent_id,
                    'attempt', f.attempt, 'next_attempt_at', f.next_attempt_at)
                else json_build_object('task_id', f.id, 'attempt', f.attempt,
                    'next_attempt_at', f.next_attempt_at, 'backoff_ms', round(f.backoff * 1000),
                    'error_class', f.error_class, 'error', f.last_error)
            end
            when 'failed' then json_build_object('task_id', f.id, 'task_type', f.task_type,
                'agent_type', f.agent_type, 'agent_id', f.agent_id, 'attempt', f.attempt,
                'error', f.last_error, 'error_class', f.error_class, 'fingerprint', f.fingerprint)
            when 'dead' then json_build_object('task_id', f.id, 'task_type', f.task_type,
                'agent_type', f.agent_type, 'agent_id', f.agent_id, 'attempt', f.attempt,
                'max_attempts', f.attempt_limit, 'error', f.last_error, 'error_class', f.error_class,
                'fingerprint', f.fingerprint)
            else json_build_object('task_id', f.id, 'task_type', f.task_type,
                'agent_type', f.agent_type, 'agent_id', f.agent_id, 'attempt', f.attempt,
                'reason', f.cancel_reason, 'actor', f.cancel_actor)
        end
    from finished f
    union all
    select f.version, gen_random_uuid(), f.workspace, f.id, 'dlq.task.' || f.status, f.attempt, f.trace_id, f.event_id,
        null, null, null,
        json_build_object('task_id', f.id, 'agent_id', f.agent_id, 'attempt', f.attempt,
            'max_attempts', f.attempt_limit, 'error', f.last_error, 'error_class', f.error_class,
            'task_type', f.task_type, 'agent_type', f.agent_type, 'payload', f.payload,
            'fingerprint', f.fingerprint)
    from finished f
    where f.status in ('failed', 'dead')
)
select f.event_id, f.status as verdict,
    extract(epoch from statement_timestamp() - f.created_at)::double precision as total_seconds
from finished f
union all
-- `not in` looks each up in a hash; a join of the two would compare each with each.
select w.event_id, case when t.id is not null then 'locked' else 'lost' end, null
from wanted w
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id
    and t.workspace = w.workspace and t.status = 'running'
where w.event_id not in (select f.event_id from finished f)
