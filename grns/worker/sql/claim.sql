-- Claims tasks by id: each by one worker at most, and only those that may run now and that any worker may run. A retry that falls under limits waits until
-- it is admitted again.
-- $1 ids, $2 lease_ids, $3 causation_ids (the commands), $4 agent_id, $5 workspace, $6 agent_type,
-- $7 task types with a handler, $8 their max_attempts, $9 lease in seconds
with wanted as (
    select w.id, w.lease_id, w.causation_id, w.ordinal
    from unnest($1::text[], $2::uuid[], $3::uuid[]) with ordinality as w (id, lease_id, causation_id, ordinal)
),
paused as (
    -- one look for the whole statement; '' is a pause of all of the pool, anything else one of that task type
    select p.task_type
    from grns.pauses p
    where p.workspace = $5 and p.agent_type = $6 and (p.until is null or p.until > now())
),
locked as (
    select t.id, t.ctid as place, w.lease_id, w.causation_id, t.queued_at as was_queued_at,
        t.last_message_id as led_here, grns.message_id((select left(gen_random_uuid()::text, 28)), w.ordinal) as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.status in ('queued', 'retry_wait') and (t.status = 'queued' or t.limits is null)
        and (t.next_attempt_at is null or t.next_attempt_at <= now())
        and (t.lease_until is null or t.lease_until < now())
        and t.workspace = $5 and t.agent_type = $6 and t.route = '' and t.task_type = any($7::text[])
        and not exists (select from paused p where p.task_type = '')
        and t.task_type <> all (array(select p.task_type from paused p))
    order by t.id
    for no key update of t skip locked
),
claimed as (
    update grns.tasks t
    set status = 'running', owner_agent_id = $4, lease_id = l.lease_id,
        lease_until = statement_timestamp() + $9::double precision * interval '1 second',  -- the transaction may have waited
        attempt = t.attempt + 1,
        -- what has been allowed already counts: a new version of the pool may allow less
        attempt_limit = greatest(t.attempt - t.uncounted_attempts + 1,
            coalesce(t.max_attempts, ($8::integer[])[array_position($7::text[], t.task_type)], 3)),
        next_attempt_at = null, queued_at = null, started_at = statement_timestamp(), updated_at = statement_timestamp(),
        version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.ctid = l.place  -- no transaction moves a locked row; one that was moved just before is not claimed
    returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.payload, t.attempt, t.attempt_limit,
        t.uncounted_attempts, t.lease_id, t.trace_id, t.version, l.event_id,
        date_part('epoch', statement_timestamp() - l.was_queued_at) as queued_seconds,  -- null: it waited for its retry
        coalesce(l.causation_id, l.led_here) as causation_id
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was,
        task_type, payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.claimed', c.attempt, c.trace_id, c.causation_id,
        case when c.queued_seconds is null then 't'::"char" else 'q'::"char" end, c.task_type,
        -- put together by hand: json_build_object looks up how to write each of its arguments, for each row
        ('{"task_id":"' || c.id || '","attempt":' || c.attempt
            || case when c.queued_seconds is null then ''
                else ',"queued_ms":' || greatest(0, c.queued_seconds * 1000)::bigint end || (
            select ',"agent_id":' || to_json($4::text) || ',"lease_until":'
                || to_json(statement_timestamp() + $9::double precision * interval '1 second') || '}'))::json
    from claimed c
)
select c.id, c.task_type, c.priority, c.payload::text as payload, c.attempt, c.attempt_limit, c.uncounted_attempts, c.lease_id,
    c.trace_id, c.causation_id, coalesce(c.queued_seconds, 0) as queued_seconds
from claimed c
