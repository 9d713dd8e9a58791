-- The schema of grns, in your own database.
create schema if not exists grns;

-- ---------------------------------------------------------------- tasks
-- What indexes hold has collation "C": another one costs a call of its library with each comparison.
create table grns.tasks (
    id                  text collate "C" primary key,
    workspace           text collate "C" not null,
    task_type           text not null,
    agent_type          text collate "C" not null,
    priority            smallint not null,
    max_attempts        integer,              -- what the submission said; null: the handler's
    idempotency_key     text collate "C",
    trace_id            text not null,
    causation_id        uuid,
    created_at          timestamptz not null default now(),
    payload             jsonb not null,
    -- What changes comes last: of an update within its page Postgres writes ahead only what follows
    -- the first byte that changed.
    status              text not null,
    version             integer not null default 1,
    attempt             integer not null default 0,
    attempt_limit       integer,              -- what counts, settled by the latest claim
    uncounted_attempts  integer not null default 0,  -- before the last redrive, or released at a shutdown
    released            integer not null default 0,  -- how often since the last redrive
    owner_agent_id      text,
    lease_id            uuid,
    lease_until         timestamptz,
    next_attempt_at     timestamptz,
    queued_at           timestamptz,          -- set exactly while queued
    queued_reason       text,
    started_at          timestamptz,          -- of the latest attempt
    finished_at         timestamptz,
    updated_at          timestamptz not null default now(),
    last_message_id     uuid not null,        -- the event of the latest transition
    last_error          jsonb,
    fingerprint         text,
    result              jsonb,
    result_ref          text,
    cancel_requested_at timestamptz,
    cancel_reason       text,
    last_traceback      text,                 -- of last_error; apart from it, since lists read that
    cancel_actor        text,
    discarded_at        timestamptz,          -- a mark, not a status: a redrive removes it
    discarded_by        text,
    operation_id        bigint,               -- the bulk operation that moved it last: it never moves it twice
    -- One constraint: each is read anew by every statement that writes, and there are many small ones.
    constraint tasks_shape check (
        case status
            when 'running' then lease_id is not null and lease_until is not null and owner_agent_id is not null
                and queued_at is null and next_attempt_at is null and finished_at is null
            when 'queued' then queued_at is not null and next_attempt_at is null and finished_at is null
            when 'waiting' then next_attempt_at is not null and queued_at is null and finished_at is null
            when 'retry_wait' then next_attempt_at is not null and queued_at is null and finished_at is null
            else status in ('succeeded', 'failed', 'dead', 'cancelled')
                and finished_at is not null and queued_at is null and next_attempt_at is null
        end
        and (status = 'running' or (lease_id is null and lease_until is null and owner_agent_id is null)))
) with (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05
);

-- Partial indexes have predicates that no hot statement implies: a guard that says
-- `status = 'running'` must not be answered from them, but from the primary key.
create unique index tasks_idempotency_key on grns.tasks (workspace, idempotency_key)
    where idempotency_key is not null;
-- The type is last: a poll passes over types that it may not take without a look at their rows.
create index tasks_ready on grns.tasks (workspace, agent_type, priority, queued_at, task_type)
    where queued_at is not null;
create index tasks_due on grns.tasks (next_attempt_at)
    where next_attempt_at is not null;
create index tasks_lease on grns.tasks (lease_until)
    where lease_until is not null;
-- Lists of ended tasks: one entry per ended task that is not discarded.
create index tasks_ended on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is null;
create index tasks_discarded on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is not null;
-- The tasks of one issue. Tasks that never failed are not in it.
create index tasks_issue on grns.tasks (workspace, fingerprint, status, finished_at, id)
    where finished_at is not null and discarded_at is null and fingerprint is not null;

create function grns.refuse_transition() returns trigger language plpgsql as $$
begin
    raise exception 'task %: there is no transition from % to %', new.id, old.status, new.status
        using errcode = 'check_violation';
end
$$;

-- The transitions of grns/model/task.py; the condition is evaluated without calling the function.
create trigger tasks_transition after update of status on grns.tasks for each row
    when (old.status is distinct from new.status and (old.status || '>' || new.status) not in (
        'waiting>queued', 'queued>running', 'retry_wait>running', 'running>succeeded', 'running>retry_wait',
        'retry_wait>queued', 'running>failed', 'running>dead', 'running>queued', 'queued>cancelled',
        'retry_wait>cancelled', 'waiting>cancelled', 'running>cancelled', 'dead>queued', 'failed>queued',
        'cancelled>queued'))
    execute function grns.refuse_transition();

-- ---------------------------------------------------------------- events: log, outbox, history
-- The default of `seq` takes the transaction's id before the number: a reader that sees a number
-- missing can then tell, from a snapshot, when its transaction has ended (see the relay).
create sequence grns.events_seq as bigint cache 1;

create table grns.events (
    seq          bigint not null
        default (case when pg_current_xact_id() is not null then nextval('grns.events_seq') end),
    version      integer not null,             -- of the task, after the transition
    message_id   uuid not null default gen_random_uuid(),
    workspace    text not null,
    task_id      text collate "C",
    kind         text not null,
    attempt      integer,
    route        text,                         -- of a command: <agent_type>.p<priority>
    trace_id     text not null,
    causation_id uuid,
    payload      json not null,
    -- Not now(), which is when the transaction began: searches by time rely on the order of the numbers.
    created_at   timestamptz not null default clock_timestamp(),
    was          "char",                       -- the status before: see LETTERS in grns/model/task.py
    task_type    text,                         -- if known: saves the stats aggregator a look at the task
    actor        text,                         -- who caused it, such as cli:ann@desk; null: grns itself
    primary key (seq)
) partition by range (seq);
-- Transitions apart from the rest: a task may tell of its progress each second.
create index events_task on grns.events (task_id, starts_with(kind, 'evt.task.'));

create view grns.log_partitions as
select c.relname::text as name,
       substring(pg_get_expr(c.relpartbound, c.oid) from $re$FROM \('(\d+)'\)$re$)::bigint as lower_seq,
       substring(pg_get_expr(c.relpartbound, c.oid) from $re$TO \('(\d+)'\)$re$)::bigint as upper_seq,
       i.inhdetachpending as is_detaching
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'grns.events'::regclass;

-- A partition is made as a plain table and attached: that waits for no writer.
create function grns.add_log_partition(rows_per_partition bigint) returns text language plpgsql as $$
declare
    lower_seq bigint;
    upper_seq bigint;
    name text;
begin
    perform pg_advisory_xact_lock(hashtext('grns.events'));  -- one janitor at a time
    lower_seq := coalesce((select max(p.upper_seq) from grns.log_partitions p), 1);
    upper_seq := lower_seq + rows_per_partition;
    name := 'events_' || lpad(lower_seq::text, 19, '0');
    execute format('create table grns.%I (like grns.events including defaults including indexes)', name);
    execute format('alter table grns.events attach partition grns.%I for values from (%s) to (%s)',
                   name, lower_seq, upper_seq);
    return name;
end
$$;
select grns.add_log_partition(2000000), grns.add_log_partition(2000000),
       grns.add_log_partition(2000000), grns.add_log_partition(2000000);

-- ---------------------------------------------------------------- messages that belong to no task
create table grns.dead_letters (
    id             uuid primary key default gen_random_uuid(),
    workspace      text not null default 'default',
    reason         text not null,
    detail         text not null,
    subject        text not null,
    stream         text not null,
    stream_seq     bigint not null,
    delivery_count integer not null,
    headers        jsonb not null,
    body           bytea not null,
    body_sha256    text not null,
    state          text not null default 'new',
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    constraint dead_letters_state check (state in ('new', 'redriven', 'discarded')),
    -- the same delivery may be judged twice, where its end did not reach the broker
    constraint dead_letters_once unique (stream, stream_seq, body_sha256)
);
create index dead_letters_recent on grns.dead_letters (workspace, created_at);
create index dead_letters_closed on grns.dead_letters (updated_at) where state <> 'new';
create index dead_letters_new on grns.dead_letters (workspace, created_at, id) where state = 'new';

-- ---------------------------------------------------------------- relay, reaper, broker
-- Of some services one process works at a time: the one whose epoch this is. What only it may write is guarded by the
-- epoch in the statement that writes it.
create table grns.leases (
    name  text primary key,
    epoch bigint not null default 0,               -- raised by each new leader
    owner text,
    until timestamptz not null default '-infinity'
) with (fillfactor = 10);
insert into grns.leases (name) values ('relay'), ('stats');

create table grns.relay_cursor (
    id            integer primary key default 1 check (id = 1),
    low           bigint not null default 0,       -- all numbers up to here are done with
    published     int8multirange not null default '{}',  -- what is done with beyond
    evt_epoch     text,                            -- of GRNS_EVT, as this log was last sent to
    evt_last_seq  bigint not null default 0,       -- highest place in GRNS_EVT that was acknowledged
    evt_lost_since   bigint,                       -- what it has lost is sent again: from there on,
    evt_lost_settled bigint,                       -- and up to here it has it again
    dlq_epoch     text,                            -- the same of GRNS_DLQ
    dlq_last_seq  bigint not null default 0,
    dlq_lost_since   bigint,
    dlq_lost_settled bigint,
    updated_at    timestamptz not null default now()
) with (fillfactor = 10);
insert into grns.relay_cursor default values;

-- The timeline that this server writes: another one after a failover. 0 where something like Postgres has none.
create function grns.timeline() returns bigint language plpgsql volatile as $$
begin
    return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
exception when others then
    return 0;
end
$$;

create table grns.reaper_state (
    id                integer primary key default 1 check (id = 1),
    last_tick_at      timestamptz,
    reap_until        timestamptz,  -- later than that, the latest tick says nothing of whether there was an outage
    server_started_at timestamptz,
    hold_until        timestamptz
) with (fillfactor = 10);
insert into grns.reaper_state default values;

-- Requested replays: ranges of the log that the relay publishes again. Ended ones go when the log does.
create table grns.replays (
    id           bigint generated always as identity primary key,
    workspace    text,                             -- null: of all
    patterns     text[] not null,                  -- of kinds, as regular expressions
    since        timestamptz not null,
    until        timestamptz not null,
    requested_at timestamptz not null default now(),
    started_at   timestamptz,
    first_seq    bigint,                           -- known once a relay has begun
    after_seq    bigint,                           -- all up to here is acknowledged
    up_to_seq    bigint,
    stored       bigint not null default 0,
    duplicates   bigint not null default 0,
    ended_at     timestamptz,
    outcome      text,
    constraint replays_end check ((ended_at is null) = (outcome is null) and outcome in ('done', 'withdrawn'))
) with (fillfactor = 50);
create index replays_open on grns.replays (id) where ended_at is null;

-- Which server this is: after a failover it is another one, or goes on under another timeline.
create table grns.server (
    id                integer primary key default 1 check (id = 1),
    system_identifier text,
    timeline          bigint,
    seen_at           timestamptz                  -- goes back with the commits that a failover loses
) with (fillfactor = 10);
insert into grns.server default values;

-- These stay: they are few, and what one has lost may be asked for years later.
create table grns.failovers (
    id                    bigint generated always as identity primary key,
    noticed_at            timestamptz not null default now(),
    last_seen_at          timestamptz not null,    -- of the server that was: all that was lost is younger
    old_system_identifier text not null,
    old_timeline          bigint not null,
    new_system_identifier text not null,
    new_timeline          bigint not null
);

-- ---------------------------------------------------------------- event handlers, agents
create table grns.processed_messages (
    consumer     text not null,
    message_id   uuid not null,
    processed_at timestamptz not null default statement_timestamp(),  -- the transaction may be a handler's
    primary key (consumer, message_id)
);
create index processed_messages_age on grns.processed_messages (processed_at);

create table grns.agents (
    agent_id      text primary key,
    workspace     text collate "C" not null,
    agent_type    text collate "C" not null,
    host          text not null,
    pid           integer not null,
    version       text not null,
    concurrency   integer not null,
    task_types    text[] not null,
    lease_seconds double precision not null,
    started_at    timestamptz not null default now(),
    last_seen_at  timestamptz not null default now(),
    worked_at     timestamptz not null default now(),  -- until then it was full, or began and ended tasks
    stopped_at    timestamptz,
    running       integer not null default 0           -- tasks, as of the last heartbeat
) with (fillfactor = 50);
-- A heartbeat changes no column that these indexes hold.
create index agents_alive on grns.agents (workspace, agent_type) where stopped_at is null;
create index agents_over_http on grns.agents (workspace) where pid = 0;
create index agents_with_process on grns.agents (agent_id) where pid <> 0 and stopped_at is null;

-- ---------------------------------------------------------------- submission
-- The ids of a statement's messages: one random one, whose last 32 bits are replaced by each message's place.
-- (Random numbers come from the operating system; one for each row was a twelfth of all that a task costs.)
create function grns.message_id(batch text, place bigint) returns uuid language sql immutable as $$
    select (batch || lpad(to_hex(place), 8, '0'))::uuid
$$;

-- The id of the command that goes with a submission or with what is due, by its event: the event's with the first of its last 32 bits set. A worker
-- that has claimed the task before its command came knows the command by it.
create function grns.command_id(event uuid) returns uuid language sql immutable as $$
    select overlay(event::text placing '8' from 29)::uuid
$$;

create function grns.new_task_id() returns text language sql volatile as $$
    -- 48 bits of time and 80 of randomness in base32, as grns.task.new_id makes them
    with bits as (
        select lpad(((extract(epoch from clock_timestamp()) * 1000)::bigint)::bit(48)::text, 48, '0')
               || ('x' || replace(gen_random_uuid()::text, '-', ''))::bit(128)::bit(48)::text
               || ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 8))::bit(32)::text || '00' as b
    )
    select 'gr-' || string_agg(
        substr('0123456789abcdefghijklmnopqrstuv', substr(b, place * 5 + 1, 5)::bit(5)::integer + 1, 1),
        '' order by place)
    from bits, generate_series(0, 25) as place
$$;

-- Creates tasks with their events and commands, and returns a row for each that it has not created: the task
-- that has its idempotency key (or its id) already, null where that cannot be seen from this transaction;
-- `same` says whether that one is of the same types and payload, `trace_id` is that one's own.
-- Arrays may be shorter than `ids`: what is missing of workspaces, types and priorities is as their first, anything
-- else null. What would become part of a subject or of a message is checked here too, all rows at once: a regular
-- expression for each row costs more than all the rest. `actor` is who asks, for all of them.
create function grns.submit_tasks(
    ids text[], workspaces text[], task_types text[], agent_types text[], priorities smallint[],
    payloads jsonb[], delays double precision[], attempts integer[], keys text[],
    traces text[], causations uuid[], actor text default null, run_ats timestamptz[] default null
) returns table (ordinal bigint, task_id text, same boolean, trace_id text) language plpgsql as $$
#variable_conflict use_column
declare
    made text[];
    names constant text[] := ids || workspaces || task_types || agent_types;
    events constant text := left(gen_random_uuid()::text, 28);
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
        or not (clock + 31622400 * interval '1 second' >= all(run_ats))
    then
        raise exception 'grns: a submission has a bad name, trace, priority, delay or number of attempts'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    with wanted as (
        select w.id, coalesce(w.workspace, workspaces[1]) as workspace,
            coalesce(w.task_type, task_types[1]) as task_type, coalesce(w.agent_type, agent_types[1]) as agent_type,
            coalesce(w.priority, priorities[1]) as priority, w.payload, w.max_attempts, w.key, w.trace_id,
            w.causation_id, w.place,
            case
                when w.run_at > clock then w.run_at
                when w.run_at is null and w.delay > 0 then clock + w.delay * interval '1 second'
            end as due_at
        from unnest(ids, workspaces, task_types, agent_types, priorities, payloads, delays, attempts, keys,
                    traces, causations, run_ats) with ordinality
            as w (id, workspace, task_type, agent_type, priority, payload, delay, max_attempts, key,
                  trace_id, causation_id, run_at, place)
    ),
    inserted as (
        insert into grns.tasks as t (id, workspace, task_type, agent_type, priority, payload, max_attempts,
            idempotency_key, trace_id, causation_id, last_message_id, status, queued_at, next_attempt_at,
            queued_reason, created_at, updated_at)
        select w.id, w.workspace, w.task_type, w.agent_type, w.priority, w.payload, w.max_attempts,
            w.key, w.trace_id, w.causation_id, grns.message_id(events, w.place),
            case when w.due_at is null then 'queued' else 'waiting' end,
            case when w.due_at is null then clock end, w.due_at,
            case when w.due_at is null then 'new_task' end, clock, clock
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
        select i.version, grns.command_id(i.last_message_id), i.workspace, i.id, 'cmd.task.execute',
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

-- How many bytes the text of a jsonb has that say nothing: Postgres writes a space behind each comma and colon.
create function grns.count_spaces(value jsonb) returns bigint language sql immutable as $$
    select coalesce(sum(case jsonb_typeof(v)
        when 'object' then greatest(2 * (select count(*) from jsonb_object_keys(v)) - 1, 0)
        when 'array' then greatest(jsonb_array_length(v) - 1, 0)
        else 0
    end), 0)::bigint
    from jsonb_path_query(value, 'strict $.**') as n (v)
$$;

-- Whether a number may be kept: an integer of 64 bits, or what a 64-bit float keeps. 40 digits may be rounded to a
-- float; more digits, and numbers at the ends of a float's range, have to be exactly as a float is written.
create function grns.is_keepable(number numeric) returns boolean language sql immutable as $$
    select case
        when abs(number) <= 9223372036854775807 then
            number = trunc(number)
            or abs(number) >= 2.2250738585072014e-308 and length(ltrim(replace(trim_scale(abs(number))::text, '.', ''), '0')) <= 40
            or abs(number) >= 5e-324 and number::float8::text::numeric = number
        when number = -9223372036854775808 then true
        when abs(number) > 1.7976931348623157e308 then false
        else number::float8::text::numeric = number
    end
$$;

-- The largest payload: GRNS_PAYLOAD_MAX_BYTES, as of the latest `grns admin db upgrade`. A function and not a row, so that
-- reading it costs nothing and needs no right. Not immutable: cached plans would keep the old value.
create function grns.payload_bytes() returns integer language sql stable as 'select 262144';

create function grns.set_payload_bytes(bytes integer) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('grns.payload_bytes'));
    if bytes <> grns.payload_bytes() then
        execute format(
            'create or replace function grns.payload_bytes() returns integer language sql stable as %L',
            'select ' || bytes);
    end if;
end
$$;

-- What a payload must keep to, as grns/model/json.py checks it. The detail of the error is the same word as there.
create function grns.check_payload(payload jsonb) returns void language plpgsql stable as $$
declare
    written constant text := payload::text;
    size constant integer := octet_length(written);
    most constant integer := grns.payload_bytes();
begin
    if payload is null or jsonb_typeof(payload) <> 'object' then
        raise exception 'grns: the payload must be a JSON object'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    elsif size > most and (size - most > most / 2 or size - grns.count_spaces(payload) > most) then
        raise exception 'grns: the payload has % bytes, % are allowed', size, most
            using errcode = 'invalid_parameter_value', detail = 'too_large';
    elsif jsonb_path_exists(payload, 'strict $.**{64 to last} ? (@.type() == "object" || @.type() == "array")') then
        raise exception 'grns: the payload is nested more than 64 levels deep'
            using errcode = 'invalid_parameter_value', detail = 'too_deep';
    elsif (select count(*) from jsonb_path_query(payload, 'strict $.**')) > 10000 then
        raise exception 'grns: the payload has more than 10000 values'
            using errcode = 'invalid_parameter_value', detail = 'too_many_nodes';
    -- jsonb writes numbers without an exponent: one that may not be kept has 19 digits in a row
    elsif written ~ '[0-9]{19}' and exists (
        select from jsonb_path_query(payload, 'strict $.** ? (@.type() == "number")') as n (number)
        where not grns.is_keepable(n.number::numeric))
    then
        raise exception 'grns: a number in the payload fits neither in 64 bits nor in a float; pass it as text'
            using errcode = 'invalid_parameter_value', detail = 'bad_number';
    end if;
end
$$;

-- Creates one task and returns its id: for any language, inside the caller's own transaction. What is refused
-- has the SQLSTATE 22023, and as its detail the word that the client raises too (`bad_submission`, `too_deep`, …).
create function grns.submit_task(
    task_type text, payload jsonb default '{}', agent_type text default 'worker', priority integer default 2,
    delay_seconds double precision default 0, max_attempts integer default null,
    idempotency_key text default null, trace_id text default null, causation_id uuid default null,
    workspace text default 'default', run_at timestamptz default null
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    answer record;
    wrong text;
    new_id constant text := grns.new_task_id();
    -- set by the transaction of an attempt (`name_attempt`)
    trace constant text := coalesce(trace_id, nullif(current_setting('grns.trace_id', true), ''));
    cause constant uuid := coalesce(causation_id, nullif(current_setting('grns.causation_id', true), '')::uuid);
    token constant text := '^[A-Za-z0-9_-]{1,64}$';
begin
    wrong := case
        when (task_type ~ token and agent_type ~ token and workspace ~ token and agent_type <> 'instance') is not true
            then 'task_type, agent_type and workspace are 1 to 64 of A-Z a-z 0-9 _ - (and agent_type is not instance)'
        when (priority between 0 and 3) is not true then 'priority is 0 (critical) to 3 (background)'
        when (delay_seconds between 0 and 31622400) is not true then 'delay_seconds is 0 to 366 days'
        when run_at is not null and delay_seconds > 0 then 'run_at: pass either a time or delay_seconds'
        when run_at > clock_timestamp() + interval '366 days' then 'run_at is at most 366 days from now'
        when max_attempts not between 1 and 1000 then 'max_attempts is 1 to 1000'
        when idempotency_key !~ '^[ -~]{1,255}$' then 'idempotency_key is 1 to 255 printable ASCII characters'
        when trace !~ '^[!-~]{1,128}$' then 'trace_id is 1 to 128 printable ASCII characters'
        when cause = '00000000-0000-0000-0000-000000000000' then 'causation_id: the nil UUID names no message'
    end;
    if wrong is not null then
        raise exception 'grns: %', wrong using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    perform grns.check_payload(payload);
    select * into answer from grns.submit_tasks(
        array[new_id], array[workspace], array[task_type], array[agent_type], array[priority::smallint],
        array[payload], array[delay_seconds], array[max_attempts], array[idempotency_key],
        array[coalesce(trace, replace(gen_random_uuid()::text, '-', ''))], array[cause],
        run_ats => array[run_at]);
    if not found then
        return new_id;
    elsif answer.task_id is null then
        raise exception 'grns: idempotency_key % is taken by a task that this transaction cannot see', idempotency_key
            using errcode = 'serialization_failure';
    elsif not answer.same then
        raise exception 'grns: idempotency_key % belongs to task %, which is another one', idempotency_key,
            answer.task_id using errcode = 'unique_violation';
    end if;
    return answer.task_id;
end
$$;

-- ---------------------------------------------------------------- stats and issues
-- The fingerprint of a failure that has no message: as grns/model/fingerprint.py makes it.
create function grns.fingerprint(task_type text, error_class text) returns text language sql stable as $$
    select left(encode(sha256(convert_to(task_type || chr(31) || error_class || chr(31), 'UTF8')), 'hex'), 16)
$$;

-- How far the log is counted. The counts and this row move in one statement.
create table grns.count_cursor (
    id          integer primary key default 1 check (id = 1),
    moves       bigint not null default 0,         -- raised by each statement that counts
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

insert into grns.count_cursor default values;

-- ---------------------------------------------------------------- workspaces, keys
-- Workspaces that were created. Tasks may be submitted into any other one, too.
create table grns.workspaces (
    workspace  text collate "C" primary key,
    created_at timestamptz not null default now(),
    created_by text,                              -- null: grns itself
    constraint workspaces_name check (workspace ~ '^[A-Za-z0-9_-]{1,64}$' and workspace not in ('_unknown', '_installation'))
);
insert into grns.workspaces (workspace) values ('default');

create table grns.api_keys (
    id            text collate "C" primary key,   -- sorts by time; it may be shown, the secret is nowhere
    workspace     text collate "C" references grns.workspaces,  -- null: of all
    name          text not null,
    secret_sha256 bytea not null,
    scopes        text[] not null,
    pools         text[],                         -- agent types that it may work for; null: all
    created_at    timestamptz not null default now(),
    created_by    text,
    expires_at    timestamptz,                    -- null: never
    revoked_at    timestamptz,
    revoked_by    text,
    last_used_at  timestamptz,                    -- written once a minute at most
    constraint api_keys_shape check (octet_length(secret_sha256) = 32 and cardinality(scopes) > 0
        and (cardinality(pools) > 0 and array_position(pools, null) is null) is not false)
) with (fillfactor = 50);
create index api_keys_workspace on grns.api_keys (workspace, id);
create index api_keys_live on grns.api_keys (workspace) where revoked_at is null;

create function grns.key_state(expires_at timestamptz, revoked_at timestamptz) returns text language sql stable as $$
    select case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'valid' end
$$;

-- What claim tokens are signed with: 244 random bits. The latest signs, the one before it still verifies. No tenant may
-- read it: it has no row in `tenant_rights`.
create table grns.token_keys (
    id         integer generated always as identity primary key,
    secret     bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    created_at timestamptz not null default now()
);
insert into grns.token_keys default values;

-- Sessions of the dashboard that were ended before their time, until it comes. No tenant may read it.
create table grns.ended_sessions (
    nonce      text primary key,
    expires_at timestamptz not null
);

-- ---------------------------------------------------------------- tenants
-- A tenant is a transaction that has become `grns_tenant` and says its workspace in `grns.workspace`. Here is what it
-- may do, with rows that bear that workspace. Every table with a column `workspace` stands here, null: nothing. Who
-- adds such a table adds a row, and calls `isolate_workspaces` again.
create table grns.tenant_rights (
    relation text primary key,
    rights   text
);
-- Whether the session's user may become a tenant: before 16 each member of a role may.
create function grns.may_be_tenant() returns boolean language sql stable as $$
    select exists (
        select from pg_roles r
        where r.rolname = 'grns_tenant' and pg_has_role(session_user, r.oid,
            case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end))
$$;

-- Makes the role, if it may, and gives it its rights. Its policies are restrictive, and another one lets every role see
-- everything: row-level security takes nothing from those who have been granted the tables, and the owner, whom it
-- leaves alone, does not pay for it. Safe to repeat: it does what is missing. False where there is no role.
create function grns.isolate_workspaces() returns boolean language plpgsql as $$
declare
    one record;
begin
    if not exists (select from pg_roles where rolname = 'grns_tenant') then
        begin
            create role grns_tenant nologin;
        exception
            when insufficient_privilege then
                return false;
            when duplicate_object or unique_violation then
                null;  -- roles are the whole server's, and another database was faster
        end;
    end if;
    if not grns.may_be_tenant() then
        begin
            grant grns_tenant to current_user;
        exception
            when insufficient_privilege or unique_violation then
                null;
        end;
    end if;
    grant usage on schema grns to grns_tenant;
    grant usage on sequence grns.events_seq to grns_tenant;
    for one in
        select c.oid::regclass as relation, r.rights,
            exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'tenant') as is_confined
        from grns.tenant_rights r
        join pg_class c on c.oid = to_regclass(format('grns.%I', r.relation))
        order by c.oid  -- the tasks before the log, as every statement locks them
    loop
        if not one.is_confined then
            execute format('create policy everybody on %s using (true)', one.relation);
            execute format($policy$
                create policy tenant on %s as restrictive to grns_tenant
                    using (workspace = current_setting('grns.workspace', true))
                $policy$, one.relation);
            execute format('alter table %s enable row level security', one.relation);
        end if;
        if one.rights is not null then
            execute format('grant %s on %s to grns_tenant', one.rights, one.relation);
        end if;
    end loop;
    for one in
        select p.oid::regprocedure as name from pg_proc p
        where p.pronamespace = 'grns'::regnamespace and p.prosecdef
    loop
        execute format('grant execute on function %s to grns_tenant', one.name);
    end loop;
    return true;
end
$$;

-- ---------------------------------------------------------------- lists, saved filters
-- Lists of tasks in any state, and of those that are due, look at so many rows, whosesoever they are: no index has the
-- workspace in front of their order. To a tenant the others' rows do not count, and it would look at all there are.
-- So it is told where so many end: by a time, and by nothing else that is another's. The time of a task that is due is
-- rounded up to the second: no tenant learns when exactly another's task is due.
create function grns.edge_of_latest(behind text, most integer) returns text
language sql stable security definer set search_path = pg_catalog as $$
    select left(t.id, 13) from grns.tasks t where t.id < behind order by t.id desc offset most - 1 limit 1
$$;
create function grns.edge_of_due(behind timestamptz, most integer) returns timestamptz
language sql stable security definer set search_path = pg_catalog as $$
    select date_trunc('second', t.next_attempt_at) + interval '1 second' from grns.tasks t
    where t.next_attempt_at is not null and t.next_attempt_at >= behind
    order by t.next_attempt_at offset most - 1 limit 1
$$;
-- They read all rows for every caller: `isolate_workspaces` grants them to tenants alone.
revoke execute on function grns.edge_of_latest(text, integer), grns.edge_of_due(timestamptz, integer) from public;

-- Saved filters. What is read back is parsed again: the text is as the parser writes it.
create table grns.saved_filters (
    workspace text collate "C" not null,
    name      text collate "C" not null,
    text      text not null,
    saved_by  text,
    saved_at  timestamptz not null default now(),
    primary key (workspace, name)
);

-- ---------------------------------------------------------------- operations
-- Bulk operations: changes to every task that matches a filter. A runner does them batch by batch, and notes how far it
-- is in the statement that moves a batch.
create table grns.operations (
    id              bigint generated always as identity primary key,
    workspace       text collate "C" not null,
    action          text not null,
    filter          text not null,
    canary          boolean not null,                -- one task first; the others, if it succeeds
    rate_per_minute double precision,                -- null: as fast as it goes
    patch           jsonb,                           -- a merge patch of each payload
    agent_type      text collate "C",                -- who is to run them instead
    reason          text,
    created_by      text not null,
    trace_id        text not null default replace(gen_random_uuid()::text, '-', ''),
    matched         bigint not null,                 -- how many there were when it was asked for
    is_exact        boolean not null,                -- whether that was all of them
    created_at      timestamptz not null default now(),  -- what came later is none of its tasks
    state           text not null default 'pending',
    state_reason    text,
    resumes_as      text,                            -- the state that it was paused in
    due_at          timestamptz default now(),       -- set exactly while a runner is to go on with it
    paced_at        timestamptz not null default now(),  -- when the next batch may be moved, by its rate
    epoch           bigint not null default 0,       -- raised whenever a runner takes it
    owner           text,
    lease_until     timestamptz not null default '-infinity',
    page_cursor     text,                            -- behind it the rest begins
    is_exhausted    boolean not null default false,  -- whether nothing is left behind it
    canary_task_id  text collate "C",
    moved           bigint not null default 0,
    skipped         bigint not null default 0,
    skipped_by      jsonb not null default '{}',     -- how many, by the reason
    succeeded       bigint not null default 0,       -- of those that were redriven, as they ended since
    failed_again    bigint not null default 0,
    ended_otherwise bigint not null default 0,
    follow_at       timestamptz,                     -- when to look at them again; null: there are none
    follow_after    text collate "C" not null default '',
    moved_at        timestamptz,                     -- when it moved something last
    ended_at        timestamptz,
    constraint operations_action check (action in ('redrive', 'discard', 'cancel')),
    constraint operations_state check (
        case state
            when 'pending' then due_at is not null and resumes_as is null and ended_at is null
            when 'canary' then due_at is not null and resumes_as is null and ended_at is null
            when 'running' then due_at is not null and resumes_as is null and ended_at is null
            when 'paused' then due_at is null and ended_at is null
                and (resumes_as in ('pending', 'canary', 'running')) is true
            else state in ('done', 'cancelled', 'failed')
                and due_at is null and resumes_as is null and ended_at is not null
        end)
) with (fillfactor = 50);
create index operations_listed on grns.operations (workspace, id);
create index operations_due on grns.operations (due_at) where due_at is not null;
create index operations_followed on grns.operations (follow_at) where follow_at is not null;

-- Redriven tasks that have not ended since, with the version that the operation gave them.
create table grns.operation_tasks (
    operation_id bigint not null,
    task_id      text collate "C" not null,
    version      integer not null,
    primary key (operation_id, task_id)
);

-- Notes what came of one batch, and returns the operation's state after it. Only the statements that move batches
-- call it: they hold the operation's row, and have seen that it is still theirs to move. `chosen` is the canary, where
-- the batch was it.
-- Who is late by up to a second makes up for that; a longer pause permits no burst.
create function grns.note_batch(
    batch_of bigint, new_cursor text, is_end boolean, chosen text, tasks bigint, skips jsonb
) returns text language plpgsql as $$
declare
    o grns.operations;
begin
    select * into strict o from grns.operations s where s.id = batch_of;
    o.state := case
        when chosen is not null then 'canary'
        when is_end then 'done'
        when o.canary and o.canary_task_id is null then 'pending'
        else 'running'
    end;
    o.paced_at := case
        when o.rate_per_minute is null then now()
        else greatest(o.paced_at, now() - interval '1 s') + make_interval(secs => 60 * tasks / o.rate_per_minute)
    end;
    o.skipped_by := (
        select coalesce(jsonb_object_agg(s.reason, s.tasks), '{}')
        from (
            select m.reason, sum(m.tasks::bigint) as tasks
            from (select * from jsonb_each_text(o.skipped_by) union all select * from jsonb_each_text(skips))
                as m (reason, tasks)
            group by m.reason
        ) as s
    );
    update grns.operations s
    set state = o.state, due_at = case when o.state <> 'done' then o.paced_at end, paced_at = o.paced_at,
        ended_at = case when o.state = 'done' then now() end,
        page_cursor = new_cursor, is_exhausted = is_end, canary_task_id = coalesce(chosen, s.canary_task_id),
        moved = s.moved + tasks, skipped_by = o.skipped_by,
        skipped = (select coalesce(sum(k.tasks::bigint), 0) from jsonb_each_text(o.skipped_by) as k (reason, tasks)),
        follow_at = case when tasks > 0 and s.action = 'redrive' then coalesce(s.follow_at, now()) else s.follow_at end,
        moved_at = case when tasks > 0 then now() else s.moved_at end
    where s.id = batch_of
    returning * into o;
    if o.state = 'done' then
        insert into grns.events (version, workspace, kind, trace_id, payload)
        values (0, o.workspace, 'evt.operation.ended', o.trace_id, json_build_object(
            'operation_id', o.id::text, 'action', o.action, 'state', o.state, 'reason', o.reason, 'actor', null,
            'moved', o.moved, 'skipped', o.skipped, 'failed_again', o.failed_again));
    end if;
    return o.state;
end
$$;

-- ---------------------------------------------------------------- pauses
-- What is paused: no claim takes of it. Each statement that claims looks here, once; there are few rows.
create table grns.pauses (
    workspace  text collate "C" not null,
    agent_type text collate "C" not null,
    task_type  text collate "C" not null default '',  -- '' is all of the pool
    paused_at  timestamptz not null default now(),
    paused_by  text not null,
    reason     text,
    until      timestamptz,                           -- null: until it is resumed
    primary key (workspace, agent_type, task_type)
);

-- ---------------------------------------------------------------- webhooks
-- Webhooks: who is told of which events, what that is signed with, and what was sent.
create table grns.webhooks (
    id                text collate "C" primary key,       -- sorts by time
    workspace         text collate "C" not null,
    url               text not null,                      -- it may hold a secret
    kinds             text[] not null,                    -- as they were asked for: evt.task.dead, evt.task.*
    pattern           text not null,                      -- the same as one regular expression
    description       text,
    is_enabled        boolean not null default true,
    disabled_reason   text,                               -- why grns itself has disabled it
    since_seq         bigint not null,                    -- the event that it was made or enabled with: it is the first
    failing_since     timestamptz,                        -- null: its latest delivery went well, or there was none
    last_delivered_at timestamptz,                        -- written once a minute at most
    version           integer not null default 1,         -- of what people have said of it
    created_at        timestamptz not null default now(),
    created_by        text not null,
    changed_at        timestamptz not null default now(),
    changed_by        text,                               -- null: grns itself
    deleted_at        timestamptz                         -- the janitor takes away what was sent, and then the row
) with (fillfactor = 50);
create index webhooks_listed on grns.webhooks (workspace, id) where deleted_at is null;
create index webhooks_enabled on grns.webhooks (workspace) where is_enabled;

-- In a table of their own: roles that may read webhooks may not read these.
create table grns.webhook_secrets (
    id         bigint generated always as identity primary key,
    webhook_id text collate "C" not null,
    workspace  text collate "C" not null,
    secret     bytea not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz                                -- null: it is the latest
);
create unique index webhook_secrets_latest on grns.webhook_secrets (webhook_id) where expires_at is null;
create index webhook_secrets_webhook on grns.webhook_secrets (webhook_id);

-- One row for each event that a webhook is told of, however often that is tried.
create table grns.webhook_deliveries (
    webhook_id   text collate "C" not null,
    seq          bigint not null,                         -- of the event in the log
    workspace    text collate "C" not null,
    message_id   uuid not null,
    kind         text not null,
    task_id      text collate "C",
    created_at   timestamptz not null default now(),
    state        text not null default 'pending',
    attempts     integer not null default 0,
    uncounted_attempts integer not null default 0,         -- those before it was sent again
    due_at       timestamptz default now(),               -- set exactly while it is pending
    claim_id     uuid,                                    -- whose attempt is under way, until due_at
    attempted_at timestamptz,
    duration_ms  integer,                                 -- these three: of the latest attempt that has ended
    status_code  integer,
    error        text,
    ended_at     timestamptz,
    primary key (webhook_id, seq),
    constraint webhook_deliveries_state check (
        case state
            when 'pending' then due_at is not null and ended_at is null
            else state in ('delivered', 'failed') and due_at is null and claim_id is null and ended_at is not null
        end)
) with (fillfactor = 70);
create index webhook_deliveries_due on grns.webhook_deliveries (webhook_id, due_at) where due_at is not null;
create index webhook_deliveries_age on grns.webhook_deliveries (created_at);

-- How far the log has been looked through: up to here each event has its deliveries. They and this row move in one
-- statement.
create table grns.webhook_cursor (
    id       integer primary key default 1 check (id = 1),
    low      bigint not null default 0,
    moved_at timestamptz not null default now()
) with (fillfactor = 10);
insert into grns.webhook_cursor default values;

-- ---------------------------------------------------------------- rights of tenants
insert into grns.tenant_rights (relation, rights) values
    ('tasks', 'select, insert, update'),
    ('events', 'select, insert'),
    ('dead_letters', 'select, update'),
    ('replays', 'select'),
    ('agents', 'select'),
    ('task_counts', 'select'),
    ('deleted_tasks', null),
    ('task_minutes', 'select'),
    ('issues', 'select, update'),
    ('issue_hours', 'select'),
    ('issue_facets', 'select'),
    ('workspaces', 'select'),
    ('api_keys', 'select (id, workspace, name, scopes, pools, created_at, created_by, expires_at, revoked_at, revoked_by,'
                 ' last_used_at), insert, update (revoked_at, revoked_by)'),
    ('saved_filters', 'select, insert, update, delete'),
    ('operations', 'select, insert, update'),
    ('pauses', 'select, insert, update, delete'),
    ('webhooks', 'select, insert, update'),
    ('webhook_secrets', 'select (id, webhook_id, workspace, created_at, expires_at), insert, update (expires_at),'
                        ' delete'),
    ('webhook_deliveries', 'select, insert, update');
select grns.isolate_workspaces();
