-- The ledger: who asked for what the log says, and the log counted.

-- Nothing may be on its way that is neither in the first counts below nor counted later. In the order in which
-- statements lock them.
lock table grns.tasks, grns.events in access exclusive mode;

alter table grns.events
    add column was "char",                     -- where the task was before: see LETTERS in grns/model/task.py
    add column task_type text,                 -- where it was at hand: spares the counter a look at the task
    add column actor text;                     -- who asked for it, as cli:ann@desk; null: grns itself
alter table grns.tasks
    add column cancel_actor text;

-- The fingerprint of a failure that has no message: as grns/model/fingerprint.py makes it.
create function grns.fingerprint(task_type text, error_class text) returns text language sql stable as $$
    select left(encode(sha256(convert_to(task_type || chr(31) || error_class || chr(31), 'UTF8')), 'hex'), 16)
$$;

-- ---------------------------------------------------------------- counts
-- How far the log is counted. The counts and this row move in one statement.
create table grns.count_cursor (
    id          integer primary key default 1 check (id = 1),
    epoch       bigint not null default 0,         -- raised by each new leader
    moves       bigint not null default 0,         -- raised by each statement that counts
    owner       text,
    lease_until timestamptz not null default '-infinity',
    low         bigint not null default 0,         -- all numbers up to here are counted
    counted     int8multirange not null default '{}',  -- what is counted beyond
    updated_at  timestamptz not null default now()
) with (fillfactor = 10);

create table grns.task_counts (
    workspace text collate "C" not null,
    task_type text collate "C" not null,
    status    text collate "C" not null,
    count     bigint not null,
    primary key (workspace, task_type, status)
) with (fillfactor = 50);

-- What retention has deleted, which no event tells: it waits here to be counted.
create table grns.deleted_tasks (
    id          bigint generated always as identity primary key,
    workspace   text not null,
    task_type   text not null,
    status      text not null,
    fingerprint text,                              -- of the issue that it belonged to as long as it was there
    count       bigint not null
);

create table grns.task_minutes (
    workspace    text collate "C" not null,
    minute       timestamptz not null,
    task_type    text collate "C" not null,
    submitted    bigint not null,
    claimed      bigint not null,
    succeeded    bigint not null,
    failed       bigint not null,
    dead         bigint not null,
    cancelled    bigint not null,
    retried      bigint not null,
    expired      bigint not null,                  -- leases that were reaped, attempts left
    released     bigint not null,
    redriven     bigint not null,
    queue_count  bigint not null,                  -- claims of what had been queued, and how long that was
    queue_ms_sum bigint not null,
    run_count    bigint not null,                  -- attempts that came to their own end, and how long they ran
    run_ms_sum   bigint not null,
    primary key (workspace, minute, task_type)
) with (fillfactor = 70);
create index task_minutes_age on grns.task_minutes (minute);

-- ---------------------------------------------------------------- issues: failures that a person would call the same
create table grns.issues (
    workspace      text collate "C" not null,
    fingerprint    text collate "C" not null,
    error_class    text not null,                  -- these three: of the latest one
    message        text not null,
    sample_task_id text collate "C" not null,
    first_seen     timestamptz not null,
    last_seen      timestamptz not null,
    total          bigint not null,                -- how often it was seen
    open_count     bigint not null,                -- how many tasks are dead or failed of it now
    state          text collate "C" not null default 'new',
    state_by       text,
    state_at       timestamptz not null default now(),
    note           text,
    owner          text,
    snoozed_until  timestamptz,
    version        integer not null default 1,     -- of what people say of it
    primary key (workspace, fingerprint),
    constraint issues_state check (state in ('new', 'acknowledged', 'ignored', 'resolved', 'regressed'))
) with (fillfactor = 70);
create index issues_seen on grns.issues (workspace, state, last_seen, fingerprint);
create index issues_age on grns.issues (last_seen) where open_count <= 0;

create table grns.issue_hours (
    workspace   text collate "C" not null,
    fingerprint text collate "C" not null,
    hour        timestamptz not null,
    count       bigint not null,
    primary key (workspace, fingerprint, hour),
    foreign key (workspace, fingerprint) references grns.issues on delete cascade
) with (fillfactor = 70);
create index issue_hours_age on grns.issue_hours (hour);

create table grns.issue_facets (
    workspace   text collate "C" not null,
    fingerprint text collate "C" not null,
    facet       text collate "C" not null,
    value       text collate "C" not null,         -- beyond the first 20 of a facet: other
    count       bigint not null,
    primary key (workspace, fingerprint, facet, value),
    foreign key (workspace, fingerprint) references grns.issues on delete cascade,
    constraint issue_facets_facet check (facet in ('task_type', 'worker', 'version', 'error'))
) with (fillfactor = 70);

-- How often an issue was seen in each of the last hours, oldest first; the last one is not over.
create function grns.issue_trend(workspace text, fingerprint text, hours integer) returns bigint[]
language sql stable as $$
    with latest as (
        select date_bin(interval '1 hour', now(), timestamptz 'epoch') as hour
    ),
    seen as materialized (  -- one stretch of the index, and not a look at it for each hour
        select h.hour, h.count
        from grns.issue_hours h
        where h.workspace = $1 and h.fingerprint = $2
            and h.hour > (select l.hour from latest l) - $3 * interval '1 hour'
    )
    select array(
        select coalesce(s.count, 0)
        from latest l
        cross join generate_series(0, $3 - 1) as g (ago)
        left join seen s on s.hour = l.hour - g.ago * interval '1 hour'
        order by g.ago desc
    )
$$;

-- What there is already.
insert into grns.task_counts (workspace, task_type, status, count)
select t.workspace, t.task_type, t.status, count(*)
from grns.tasks t
group by t.workspace, t.task_type, t.status;

insert into grns.issues (workspace, fingerprint, error_class, message, sample_task_id, first_seen, last_seen, total,
    open_count)
select t.workspace, t.fingerprint, coalesce(max(t.last_error ->> 'class'), ''),
    coalesce(left(max(t.last_error ->> 'message'), 1000), ''), max(t.id), min(t.finished_at), max(t.finished_at),
    count(*), count(*)
from grns.tasks t
where t.status in ('dead', 'failed') and t.fingerprint is not null
group by t.workspace, t.fingerprint;

insert into grns.count_cursor (low)
select case when s.is_called then s.last_value else 0 end from grns.events_seq s;

-- ---------------------------------------------------------------- submission
drop function grns.submit_tasks(text[], text[], text[], text[], smallint[], jsonb[], double precision[], integer[],
    text[], text[], uuid[]);

-- Creates tasks with their events and commands, and returns a row for each that it has not created: the task
-- that has its idempotency key (or its id) already, null where that cannot be seen from this transaction;
-- `same` says whether that one is of the same types and payload, `trace_id` is that one's own.
-- Arrays may be shorter than `ids`: what is missing of workspaces, types and priorities is as their first, anything
-- else null. What would become part of a subject or of a message is checked here too, all rows at once: a regular
-- expression for each row costs more than all the rest. `actor` is who asks, for all of them.
create function grns.submit_tasks(
    ids text[], workspaces text[], task_types text[], agent_types text[], priorities smallint[],
    payloads jsonb[], delays double precision[], attempts integer[], keys text[],
    traces text[], causations uuid[], actor text default null
) returns table (ordinal bigint, task_id text, same boolean, trace_id text) language plpgsql as $$
#variable_conflict use_column
declare
    made text[];
    names constant text[] := ids || workspaces || task_types || agent_types;
    events constant text := left(gen_random_uuid()::text, 28);
    commands constant text := left(gen_random_uuid()::text, 28);
    -- One time for all rows of a call. Not now(), which is when the caller's transaction began, nor
    -- statement_timestamp(), which in a caller's function or `do` block is when that was called.
    clock constant timestamptz := clock_timestamp();
begin
    if array_to_string(names, '') !~ '^[A-Za-z0-9_-]*$' or array_to_string(traces, '') !~ '^[!-~]*$'
        or (select bool_or(length(n.name) not between 1 and 64) from unnest(names) as n (name))
        or (select bool_or(length(t.trace) not between 1 and 128) from unnest(traces) as t (trace))
        or 'instance' = any(agent_types)
        or not (0 <= all(priorities) and 3 >= all(priorities)) or not (1 <= all(attempts) and 1000 >= all(attempts))
        or not (0 <= all(delays) and 31622400 >= all(delays))
    then
        raise exception 'grns: a submission has a bad name, trace, priority, delay or number of attempts'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    with wanted as (
        select w.id, coalesce(w.workspace, workspaces[1]) as workspace,
            coalesce(w.task_type, task_types[1]) as task_type, coalesce(w.agent_type, agent_types[1]) as agent_type,
            coalesce(w.priority, priorities[1]) as priority, w.payload, w.delay, w.max_attempts, w.key, w.trace_id,
            w.causation_id, w.place
        from unnest(ids, workspaces, task_types, agent_types, priorities, payloads, delays, attempts, keys,
                    traces, causations) with ordinality
            as w (id, workspace, task_type, agent_type, priority, payload, delay, max_attempts, key,
                  trace_id, causation_id, place)
    ),
    inserted as (
        insert into grns.tasks as t (id, workspace, task_type, agent_type, priority, payload, max_attempts,
            idempotency_key, trace_id, causation_id, last_message_id, status, queued_at, next_attempt_at,
            queued_reason, created_at, updated_at)
        select w.id, w.workspace, w.task_type, w.agent_type, w.priority, w.payload, w.max_attempts,
            w.key, w.trace_id, w.causation_id, grns.message_id(events, w.place),
            case when w.delay > 0 then 'waiting' else 'queued' end,
            case when w.delay > 0 then null else clock end,
            case when w.delay > 0 then clock + w.delay * interval '1 second' end,
            case when w.delay > 0 then null else 'new_task' end, clock, clock
        from wanted w
        order by w.workspace, w.key, w.place  -- keys are taken in one order, so that batches do not deadlock
        on conflict do nothing
        returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.status, t.trace_id, t.causation_id,
            t.last_message_id, t.next_attempt_at, t.version
    ),
    logged as (
        insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id,
            causation_id, actor, task_type, payload)
        select i.version, i.last_message_id, i.workspace, i.id,
            case i.status when 'waiting' then 'evt.task.waiting' else 'evt.task.queued' end,
            0, null, i.trace_id, i.causation_id, actor, i.task_type,
            case i.status
                when 'waiting' then json_build_object('task_id', i.id, 'task_type', i.task_type,
                    'agent_type', i.agent_type, 'priority', i.priority, 'next_attempt_at', i.next_attempt_at)
                -- by hand: json_build_object looks up how to write each of its arguments, for each row
                else ('{"task_id":"' || i.id || '","task_type":"' || i.task_type || '","agent_type":"' || i.agent_type
                    || '","priority":' || i.priority || ',"reason":"new_task"}')::json
            end
        from inserted i
        union all
        select i.version, grns.message_id(commands, row_number() over ()), i.workspace, i.id, 'cmd.task.execute',
            0, i.agent_type || '.p' || i.priority, i.trace_id, i.causation_id, null, null,
            ('{"task_id":"' || i.id || '","target_agent_type":"' || i.agent_type || '","reason":"new_task"}')::json
        from inserted i
        where i.status = 'queued'
    )
    select array_agg(i.id) into made from inserted i;

    if cardinality(made) = cardinality(ids) then
        return;
    end if;
    -- A new statement, hence a new snapshot: it sees who took the key while the first one waited.
    return query
    select w.place, t.id, t.task_type = coalesce(w.task_type, task_types[1])
        and t.agent_type = coalesce(w.agent_type, agent_types[1]) and t.payload = w.payload,
        t.trace_id
    from unnest(ids, workspaces, task_types, agent_types, payloads, keys) with ordinality
        as w (id, workspace, task_type, agent_type, payload, key, place)
    left join lateral (
        select o.id, o.task_type, o.agent_type, o.payload, o.trace_id from grns.tasks o where o.id = w.id
        union all
        select o.id, o.task_type, o.agent_type, o.payload, o.trace_id from grns.tasks o
        where o.workspace = coalesce(w.workspace, workspaces[1]) and o.idempotency_key = w.key and o.id <> w.id
            and not exists (select from grns.tasks s where s.id = w.id)
    ) as t on true
    where w.id <> all(coalesce(made, '{}'));
end
$$;
