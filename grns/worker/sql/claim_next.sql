-- Claims queued tasks without their commands, most urgent first: fallback polling, and the only way to tasks that have a route.
-- Those are looked up route by route: what others may run is not read, but for one step through the index for each route.
-- $1 lease_ids (as many as tasks are wanted), $2 agent_id, $3 workspace, $4 agent_type,
-- $5 task types with a handler, $6 their max_attempts, $7 lease in seconds, $8 least age in the queue in seconds (null: only
-- what has a route), $9 name of the agent (null: none)
with recursive paused as materialized (
    -- one look for the whole statement; '' is a pause of all of the pool, anything else one of that task type
    select p.task_type
    from grns.pauses p
    where p.workspace = $3 and p.agent_type = $4 and (p.until is null or p.until > now())
),
open_types as (
    select h.task_type from unnest($5::text[]) as h (task_type)
    where not exists (select from paused p where p.task_type in ('', h.task_type))
),
unrouted as (
    select t.id, t.ctid as place, t.queued_at as was_queued_at, t.last_message_id as led_here, t.priority
    from grns.tasks t
    where $8::double precision is not null
        and t.workspace = $3 and t.agent_type = $4 and t.queued_at is not null
        and t.queued_at < now() - $8::double precision * interval '1 second'
        and t.status = 'queued' and t.route = '' and t.task_type = any (array(select o.task_type from open_types o))
    order by t.priority, t.queued_at
    limit cardinality($1::uuid[])
    for no key update of t skip locked
),
-- Routes to capabilities that have tasks in the queue: each is one step through the index.
step as (
    (select t.route, 1 as place
    from grns.tasks t
    where $9::text is not null and t.workspace = $3 and t.agent_type = $4 and t.queued_at is not null and t.route <> ''
        and t.route >= 'c:'
    order by t.route
    limit 1)
    union all
    select n.route, s.place + 1
    from step s
    cross join lateral (
        select t.route
        from grns.tasks t
        where t.workspace = $3 and t.agent_type = $4 and t.queued_at is not null and t.route <> '' and t.route > s.route
        order by t.route
        limit 1
    ) as n
    where s.place < 1000
),
routes as (
    select grns.route_to($9::text, null) as route where $9::text is not null
    union all
    select s.route
    from step s
    join grns.agents g on g.workspace = $3 and g.name = $9::text
    where grns.capabilities_of(s.route) <@ g.capabilities
),
-- The most urgent of all routes, and some more, for others may have locked these. What is locked is claimed: another agent that
-- finds it locked looks no second time.
candidates as materialized (
    select f.*
    from routes r
    cross join lateral (
        select t.id, t.priority, t.queued_at
        from grns.tasks t
        where t.workspace = $3 and t.agent_type = $4 and t.queued_at is not null and t.route <> '' and t.route = r.route
            and t.status = 'queued' and t.task_type = any (array(select o.task_type from open_types o))
        order by t.priority, t.queued_at
        limit cardinality($1::uuid[]) + 100
    ) as f
    order by f.priority, f.queued_at
    limit cardinality($1::uuid[]) + 100
),
routed as (
    select t.id, t.ctid as place, t.queued_at as was_queued_at, t.last_message_id as led_here, t.priority
    from candidates c
    join grns.tasks t on t.id = c.id
    where t.queued_at is not null and t.status = 'queued'
    order by c.priority, c.queued_at
    limit cardinality($1::uuid[])
    for no key update of t skip locked
),
locked as (
    select u.* from unrouted u
    union all
    select r.* from routed r
    order by priority, was_queued_at
    limit cardinality($1::uuid[])
),
numbered as (
    select l.*, row_number() over () as ordinal from locked l
),
leased as (
    select n.place, n.was_queued_at, n.led_here, ($1::uuid[])[n.ordinal] as lease_id,
        grns.message_id((select left(gen_random_uuid()::text, 28)), n.ordinal) as event_id
    from numbered n
),
claimed as (
    update grns.tasks t
    set status = 'running', owner_agent_id = $2, lease_id = l.lease_id,
        lease_until = statement_timestamp() + $7::double precision * interval '1 second',  -- the transaction may have waited
        attempt = t.attempt + 1,
        -- what has been allowed already counts: a new version of the pool may allow less
        attempt_limit = greatest(t.attempt - t.uncounted_attempts + 1,
            coalesce(t.max_attempts, ($6::integer[])[array_position($5::text[], t.task_type)], 3)),
        next_attempt_at = null, queued_at = null, started_at = statement_timestamp(), updated_at = statement_timestamp(),
        version = t.version + 1, last_message_id = l.event_id
    from leased l
    where t.ctid = l.place  -- no transaction moves a locked row
    returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.payload, t.attempt, t.attempt_limit,
        t.uncounted_attempts, t.lease_id, t.trace_id, t.version, l.event_id,
        date_part('epoch', statement_timestamp() - l.was_queued_at) as queued_seconds, l.led_here as causation_id
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was,
        task_type, payload)
    select c.version, c.event_id, c.workspace, c.id, 'evt.task.claimed', c.attempt, c.trace_id, c.causation_id,
        'q'::"char", c.task_type,
        ('{"task_id":"' || c.id || '","attempt":' || c.attempt
            || ',"queued_ms":' || greatest(0, c.queued_seconds * 1000)::bigint || (
            select ',"agent_id":' || to_json($2::text) || ',"lease_until":'
                || to_json(statement_timestamp() + $7::double precision * interval '1 second') || '}'))::json
    from claimed c
)
select c.id, c.task_type, c.priority, c.payload::text as payload, c.attempt, c.attempt_limit, c.uncounted_attempts, c.lease_id,
    c.trace_id, c.causation_id, c.queued_seconds
from claimed c
