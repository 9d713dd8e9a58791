-- The truth: everything of grns lives in this schema, in the user's own database.
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
create index tasks_ready on grns.tasks (workspace, agent_type, priority, queued_at)
    where queued_at is not null;
create index tasks_due on grns.tasks (next_attempt_at)
    where next_attempt_at is not null;
create index tasks_lease on grns.tasks (lease_until)
    where lease_until is not null;
create index tasks_dead on grns.tasks (workspace, finished_at)
    where status in ('dead', 'failed');

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
-- The default of `seq` takes the transaction's id before the number: whoever sees a number
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
    -- Not now(), which is when the transaction began: whoever looks for a time goes by the order of the numbers.
    created_at   timestamptz not null default clock_timestamp(),
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

-- A partition is made as a plain table and attached: that waits for nobody who writes.
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

-- ---------------------------------------------------------------- relay, reaper, broker
create table grns.relay_cursor (
    id            integer primary key default 1 check (id = 1),
    epoch         bigint not null default 0,       -- raised by each new leader
    owner         text,
    lease_until   timestamptz not null default '-infinity',
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

-- What somebody has asked the relay to publish again: a stretch of the log. Ended ones go when the log does.
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
    workspace     text not null,
    agent_type    text not null,
    host          text not null,
    pid           integer not null,
    version       text not null,
    concurrency   integer not null,
    task_types    text[] not null,
    lease_seconds double precision not null,
    started_at    timestamptz not null default now(),
    last_seen_at  timestamptz not null default now(),
    worked_at     timestamptz not null default now(),  -- until then it was full, or began and ended tasks
    stopped_at    timestamptz
) with (fillfactor = 50);

-- ---------------------------------------------------------------- submission
-- The ids of a statement's messages: one random one, whose last 32 bits are replaced by each message's place.
-- (Random numbers come from the operating system; one for each row was a twelfth of all that a task costs.)
create function grns.message_id(batch text, place bigint) returns uuid language sql immutable as $$
    select (batch || lpad(to_hex(place), 8, '0'))::uuid
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
-- expression for each row costs more than all the rest.
create function grns.submit_tasks(
    ids text[], workspaces text[], task_types text[], agent_types text[], priorities smallint[],
    payloads jsonb[], delays double precision[], attempts integer[], keys text[],
    traces text[], causations uuid[]
) returns table (ordinal bigint, task_id text, same boolean, trace_id text) language plpgsql as $$
#variable_conflict use_column
declare
    made text[];
    names constant text[] := ids || workspaces || task_types || agent_types;
    events constant text := left(gen_random_uuid()::text, 28);
    commands constant text := left(gen_random_uuid()::text, 28);
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
            queued_reason)
        select w.id, w.workspace, w.task_type, w.agent_type, w.priority, w.payload, w.max_attempts,
            w.key, w.trace_id, w.causation_id, grns.message_id(events, w.place),
            case when w.delay > 0 then 'waiting' else 'queued' end,
            case when w.delay > 0 then null else now() end,
            case when w.delay > 0 then now() + w.delay * interval '1 second' end,
            case when w.delay > 0 then null else 'new_task' end
        from wanted w
        order by w.workspace, w.key, w.place  -- keys are taken in one order, so that batches do not deadlock
        on conflict do nothing
        returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.status, t.trace_id, t.causation_id,
            t.last_message_id, t.next_attempt_at, t.version
    ),
    logged as (
        insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id,
            causation_id, payload)
        select i.version, i.last_message_id, i.workspace, i.id,
            case i.status when 'waiting' then 'evt.task.waiting' else 'evt.task.queued' end,
            0, null, i.trace_id, i.causation_id,
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
            0, i.agent_type || '.p' || i.priority, i.trace_id, i.causation_id,
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

-- The largest payload: GRNS_PAYLOAD_MAX_BYTES, as of the latest `grns db upgrade`. A function and not a row, so that
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
    workspace text default 'default'
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    answer record;
    wrong text;
    new_id constant text := grns.new_task_id();
    token constant text := '^[A-Za-z0-9_-]{1,64}$';
begin
    wrong := case
        when (task_type ~ token and agent_type ~ token and workspace ~ token and agent_type <> 'instance') is not true
            then 'task_type, agent_type and workspace are 1 to 64 of A-Z a-z 0-9 _ - (and agent_type is not instance)'
        when (priority between 0 and 3) is not true then 'priority is 0 (critical) to 3 (background)'
        when (delay_seconds between 0 and 31622400) is not true then 'delay_seconds is 0 to 366 days'
        when max_attempts not between 1 and 1000 then 'max_attempts is 1 to 1000'
        when idempotency_key !~ '^[ -~]{1,255}$' then 'idempotency_key is 1 to 255 printable ASCII characters'
        when trace_id !~ '^[!-~]{1,128}$' then 'trace_id is 1 to 128 printable ASCII characters'
        when causation_id = '00000000-0000-0000-0000-000000000000' then 'causation_id: the nil UUID names no message'
    end;
    if wrong is not null then
        raise exception 'grns: %', wrong using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    perform grns.check_payload(payload);
    select * into answer from grns.submit_tasks(
        array[new_id], array[workspace], array[task_type], array[agent_type], array[priority::smallint],
        array[payload], array[delay_seconds], array[max_attempts], array[idempotency_key],
        array[coalesce(trace_id, replace(gen_random_uuid()::text, '-', ''))], array[causation_id]);
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
