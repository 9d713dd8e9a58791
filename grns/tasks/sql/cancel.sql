-- Cancels tasks: at once where they do not run, else by a request that the worker's renewal brings.
-- $1 ids, $2 reason, $3 workspace, $4 who asks
-- The time is the statement's, not now(): it may run in a transaction that began earlier.
with wanted as (
    select w.id from unnest($1::text[]) as w (id)
),
locked as (
    select t.id, t.status as was, t.last_message_id as led_here, t.owner_agent_id as agent_id,
        gen_random_uuid() as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.workspace = $3
    order by t.id
    for no key update of t
),
requested as (
    update grns.tasks t
    set cancel_requested_at = coalesce(t.cancel_requested_at, statement_timestamp()),
        cancel_reason = coalesce(t.cancel_reason, $2::text),
        cancel_actor = case when t.cancel_requested_at is null then $4::text else t.cancel_actor end,
        updated_at = statement_timestamp()
    from locked l
    where t.id = l.id and l.was = 'running'
    returning t.id, l.agent_id
),
cancelled as (
    -- Where `locked` had to wait, the shape is first checked with what this statement's snapshot knows, which may
    -- be a task that runs: all that belongs to the shape is set, also what is so already in the row that was locked.
    update grns.tasks t
    set status = 'cancelled', owner_agent_id = null, lease_id = null, lease_until = null,
        cancel_requested_at = statement_timestamp(), cancel_reason = $2::text, cancel_actor = $4::text,
        next_attempt_at = null, waits_for = null, queued_at = null, finished_at = statement_timestamp(),
        updated_at = statement_timestamp(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id and l.was in ('queued', 'retry_wait', 'waiting')
    returning t.*, l.event_id, l.led_here, l.was
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was, actor,
        payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.cancelled', c.attempt, c.trace_id, c.led_here,
        case c.was when 'retry_wait' then 't' else left(c.was, 1) end::"char", c.cancel_actor,
        json_build_object('task_id', c.id, 'task_type', c.task_type, 'agent_type', c.agent_type,
            'agent_id', null, 'attempt', c.attempt, 'reason', c.cancel_reason, 'actor', c.cancel_actor)
    from cancelled c
)
select c.id, null as agent_id, 'cancelled' as answer from cancelled c
union all
select r.id, r.agent_id, 'requested' from requested r
union all
select l.id, null, l.was from locked l where l.was not in ('running', 'queued', 'retry_wait', 'waiting')
