-- Claims tasks that nobody was told of, most urgent first: the floor under the broker.
-- $1 lease_ids (as many as tasks are wanted), $2 agent_id, $3 workspace, $4 agent_type,
-- $5 task types with a handler, $6 their max_attempts, $7 lease in seconds, $8 least age in the queue in seconds
with handled as (
    select h.task_type, h.max_attempts from unnest($5::text[], $6::integer[]) as h (task_type, max_attempts)
),
locked as (
    select t.id, t.task_type, t.queued_at as was_queued_at, t.last_message_id as led_here,
        gen_random_uuid() as event_id
    from grns.tasks t
    where t.workspace = $3 and t.agent_type = $4 and t.queued_at is not null
        and t.queued_at < now() - $8::double precision * interval '1 second'
        and t.status = 'queued' and t.task_type = any($5::text[])
    order by t.priority, t.queued_at
    limit cardinality($1::uuid[])
    for update of t skip locked
),
numbered as (
    select l.*, row_number() over () as place from locked l
),
leased as (
    select n.id, n.was_queued_at, n.led_here, n.event_id, h.max_attempts, w.lease_id
    from numbered n
    join handled h on h.task_type = n.task_type
    join unnest($1::uuid[]) with ordinality as w (lease_id, place) on w.place = n.place
),
claimed as (
    update grns.tasks t
    set status = 'running', owner_agent_id = $2, lease_id = l.lease_id,
        lease_until = now() + $7::double precision * interval '1 second',
        attempt = t.attempt + 1, attempt_limit = coalesce(t.max_attempts, l.max_attempts, 3),
        next_attempt_at = null, queued_at = null, started_at = now(), updated_at = now(),
        version = t.version + 1, last_message_id = l.event_id
    from leased l
    where t.id = l.id
    returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.payload, t.attempt, t.attempt_limit,
        t.forgiven, t.lease_id, t.lease_until, t.trace_id, t.version, t.created_at, l.event_id, l.was_queued_at,
        l.led_here as causation_id
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.claimed', c.attempt, c.trace_id, c.causation_id,
        json_build_object('task_id', c.id, 'agent_id', $2::text, 'attempt', c.attempt, 'lease_until', c.lease_until)
    from claimed c
)
select c.id, c.task_type, c.priority, c.payload::text as payload, c.attempt, c.attempt_limit, c.forgiven, c.lease_id,
    c.trace_id, c.created_at, c.causation_id,
    extract(epoch from now() - c.was_queued_at)::double precision as queued_seconds
from claimed c
