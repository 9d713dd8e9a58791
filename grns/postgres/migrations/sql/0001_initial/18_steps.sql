-- Steps.
-- What a handler has recorded: a later attempt gets the value and does not run the step again. Only the attempt that owns
-- the task writes one, and the first value stays.
create table grns.steps (
    task_id     text collate "C" not null,
    name        text collate "C" not null,
    workspace   text collate "C" not null,
    kind        text not null,
    value       jsonb not null,                   -- of a sleep: `until`, in seconds since 1970
    attempt     integer not null,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (task_id, name),
    constraint steps_kind check (kind in ('step', 'sleep', 'fan_out', 'signal', 'wait'))
);

-- Signals. One that is sent before its task asks for it waits here; of one name they are taken in order.
create table grns.signals (
    id        uuid not null,
    seq       bigint generated always as identity,
    workspace text collate "C" not null,
    task_id   text collate "C" not null,
    name      text collate "C" not null,
    value     jsonb not null,
    sent_by   text,
    sent_at   timestamptz not null default clock_timestamp(),
    taken_by  text,                               -- the step that has it
    primary key (task_id, id)
);
create index signals_task on grns.signals (task_id, name, seq);

-- For which signal a task waits, and until when. A row says nothing once the task does not wait for a signal any more.
create table grns.signal_waits (
    task_id   text collate "C" primary key,
    workspace text collate "C" not null,
    name      text collate "C" not null,
    step      text not null,
    until     timestamptz                         -- null: as long as it takes
);

-- Whether an attempt has recorded a step: then it does not count if it fails.
create function grns.has_recorded(task_id text, attempt integer) returns boolean language sql stable as $$
    select exists (select from grns.steps s where s.task_id = $1 and s.attempt = $2)
$$;

-- Lets a task wait whose handler asks for it, and records why: its slot is free, and the attempt does not count. It waits for a
-- time (`seconds`), until `required` of the tasks `needed` have ended, however they did, or for a signal, both for `seconds` at
-- most: until when is a step, too. A `question` is asked, unless an earlier attempt has asked it, with the signal as its answer.
-- Answers as grns/worker/sql/finish.sql:
-- `waiting`, `lost`, `locked`; or `cancelled`: a cancel was asked for, and nothing is written.
-- Of a step that an earlier attempt has recorded, the time stays.
create function grns.suspend_task(
    id text, attempt integer, lease_id uuid, workspace text, event_id uuid, causation_id uuid, step text,
    seconds double precision, needed text[], required integer, signal text, question jsonb default null
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    task grns.tasks;
    due timestamptz;
    cause text := 'time';
    deadline constant text := case when needed is null then step else step || ' until' end;
    clock constant timestamptz := clock_timestamp();
begin
    select t.* into task from grns.tasks t
    where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace and t.status = 'running'
    for no key update skip locked;
    if not found then
        return case when exists (
            select from grns.tasks t
            where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace
                and t.status = 'running') then 'locked' else 'lost' end;
    elsif task.cancel_requested_at is not null then
        return 'cancelled';
    end if;
    if signal is not null then
        insert into grns.signal_waits as w (task_id, workspace, name, step, until)
        values (id, workspace, signal, step, clock + seconds * interval '1 second')
        on conflict (task_id) do update
        set name = excluded.name, step = excluded.step,
            until = case when w.step = excluded.step then w.until else excluded.until end
        returning w.until into due;
        cause := 'signal';
        if question is not null then
            perform grns.ask_question(task, step, due, question);
        end if;
        -- Who sends one locks the task first: it was sent before, or comes after this has been committed.
        if exists (select from grns.signals s where s.task_id = id and s.name = signal and s.taken_by is null) then
            cause := 'time';
            due := clock;
        end if;
    elsif seconds is not null then
        insert into grns.steps as s (task_id, name, workspace, kind, value, attempt)
        values (id, deadline, workspace, 'sleep', jsonb_build_object('until', extract(epoch from clock) + seconds), attempt)
        on conflict (task_id, name) do nothing;
        select to_timestamp((s.value ->> 'until')::double precision) into due
        from grns.steps s where s.task_id = id and s.name = deadline;
    end if;
    if needed is not null then
        cause := 'tasks';
        -- What is left over from an earlier wait for some of several would wake it. The follower takes them in this order.
        perform from grns.needs e where e.task_id = id and e.ended_as is null order by e.needs for update;
        delete from grns.needs e
        where e.task_id = id and e.ended_as is null and e.name is null and e.needs <> all(needed);
        -- The follower counts what has ended: it reads the event below.
        insert into grns.needs as e (task_id, needs, workspace, outcome)
        select id, n.needs, workspace, 'end' from unnest(needed) as n (needs)
        order by n.needs collate "C"  -- as the follower takes them
        on conflict (task_id, needs) do update set outcome = 'end' where e.outcome <> 'end';
        perform from grns.waits w where w.task_id = id for no key update;  -- the follower may be at it
        with recounted as (
            select count(*) filter (where e.ended_as is null) as open,
                count(*) filter (where grns.is_met(e.outcome, e.ended_as)) as met,
                count(*) filter (where grns.is_broken(e.outcome, e.ended_as)) as broken,
                count(*) filter (where grns.is_met(e.outcome, e.ended_as) and e.needs not in (select unnest(needed))) as before
            from grns.needs e where e.task_id = id
        )
        insert into grns.waits as w (task_id, workspace, open, met, broken, required, until)
        select id, workspace, r.open, r.met, r.broken, r.before + required, due from recounted r
        on conflict (task_id) do update
        set open = excluded.open, met = excluded.met, broken = excluded.broken, required = excluded.required, run_at = null,
            until = excluded.until;
    end if;
    update grns.tasks t
    set status = 'waiting', waits_for = cause, next_attempt_at = due,
        owner_agent_id = null, lease_id = null, lease_until = null, uncounted_attempts = t.uncounted_attempts + 1,
        updated_at = clock, version = t.version + 1, last_message_id = event_id
    where t.id = id
    returning t.* into task;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was, task_type,
        payload)
    values (task.version, event_id, workspace, id, 'evt.task.waiting', attempt, task.trace_id, causation_id, 'r',
        task.task_type,
        json_build_object('task_id', id, 'task_type', task.task_type, 'agent_type', task.agent_type,
            'priority', task.priority, 'waits_for', task.waits_for, 'next_attempt_at', due, 'attempt', attempt,
            'step', step));
    return 'waiting';
end
$$;

-- Takes the oldest signal of a name for a step of an attempt that owns its task, and records it; or that the time to wait for it
-- has passed. Answers with the value of the step, `{"value": …}` or `{"timed_out": true}`; with null where the task has to
-- wait, with `{"lost": true}` where the attempt does not own it any more, and with `{"locked": true}` where another transaction
-- has the task locked. With the digest of a question, an answer to something else is not taken.
create function grns.take_signal(
    id text, attempt integer, lease_id uuid, workspace text, step text, signal text, shown_digest text default null
) returns jsonb language plpgsql as $$
#variable_conflict use_variable
declare
    answer jsonb;
    taken uuid;
begin
    perform from grns.tasks t
    where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace and t.status = 'running'
    for no key update skip locked;
    if not found then
        return case when exists (
            select from grns.tasks t
            where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace
                and t.status = 'running') then '{"locked": true}' else '{"lost": true}' end;
    end if;
    select s.value into answer from grns.steps s where s.task_id = id and s.name = step;
    if found then
        return answer;
    end if;
    if shown_digest is not null then
        perform grns.reopen_question(id, step, shown_digest);
    end if;
    select s.id, jsonb_build_object('value', s.value) into taken, answer
    from grns.signals s where s.task_id = id and s.name = signal and s.taken_by is null
    order by s.seq
    limit 1;
    if found then
        update grns.signals s set taken_by = step where s.task_id = id and s.id = taken;
    elsif exists (
        select from grns.signal_waits w where w.task_id = id and w.step = step and w.until <= clock_timestamp())
    then
        answer := '{"timed_out": true}';
        perform grns.expire_question(id, step);
        delete from grns.event_waits w where w.task_id = id and w.step = step;
    else
        return null;
    end if;
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    values (id, step, workspace, 'signal', answer, attempt);
    return answer;
end
$$;

-- Keeps a signal for a task that is locked, and queues the task if it waits for that: answers `woken` or `kept`.
create function grns.deliver_signal(
    target grns.tasks, signal_id uuid, name text, value jsonb, actor text, wakes boolean
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    task grns.tasks := target;
    event uuid;
    clock constant timestamptz := clock_timestamp();
begin
    insert into grns.signals (id, workspace, task_id, name, value, sent_by)
    values (signal_id, task.workspace, task.id, name, value, actor);
    if task.waits_for is distinct from 'signal'
        or not exists (select from grns.signal_waits w where w.task_id = task.id and w.name = name)
    then
        return 'kept';
    end if;
    event := gen_random_uuid();
    update grns.tasks t
    set status = case when t.limits is null then 'queued' else 'waiting' end,
        waits_for = case when t.limits is not null then 'limit' end, next_attempt_at = null,
        queued_at = case when t.limits is null then clock end,
        queued_reason = case when t.limits is null then 'signaled' else t.queued_reason end,
        updated_at = clock, version = t.version + 1, last_message_id = event
    where t.id = task.id
    returning t.* into task;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id, was, actor,
        payload)
    select task.version, event, task.workspace, task.id, 'evt.task.' || task.status, task.attempt,
        case task.status when 'queued' then grns.command_route(task.agent_type, task.priority, task.route) end, task.trace_id, null::uuid, 'w'::"char", actor,
        json_strip_nulls(json_build_object('task_id', task.id, 'task_type', task.task_type, 'agent_type', task.agent_type,
            'priority', task.priority, 'reason', 'signaled', 'waits_for', task.waits_for, 'actor', actor));
    if wakes then
        perform grns.wake_relay();
    end if;
    return 'woken';
end
$$;

-- Sends a signal to a task, for any language, inside the caller's own transaction; one that waits for it is queued. Its `signal_id`
-- names it: sent again, nothing is done. Answers `woken`, `kept` until the task asks for it, `repeated`, or the status of a task
-- that has ended, which takes none. What is refused has the SQLSTATE 22023.
create function grns.send_signal(
    task_id text, name text, value jsonb default 'null', signal_id uuid default null, workspace text default 'default',
    actor text default null, wakes boolean default true
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    task grns.tasks;
    new_id constant uuid := coalesce(signal_id, gen_random_uuid());
begin
    if (name ~ '^[A-Za-z0-9_.-]{1,64}$' and value is not null and octet_length(value::text) <= 65536) is not true then
        raise exception 'grns: a signal has a name of 1 to 64 of A-Z a-z 0-9 _ . - and a value of 64 KiB at most'
            using errcode = 'invalid_parameter_value', detail = 'bad_signal';
    end if;
    select t.* into task from grns.tasks t where t.id = task_id and t.workspace = workspace for no key update;
    if not found then
        raise exception 'grns: there is no task % in workspace %', task_id, workspace
            using errcode = 'no_data_found', detail = 'not_found';
    elsif exists (select from grns.signals s where s.task_id = task_id and s.id = new_id) then
        return 'repeated';
    elsif task.finished_at is not null then
        return task.status;
    elsif (select count(*) from grns.signals s where s.task_id = task_id and s.taken_by is null) >= 1000 then
        raise exception 'grns: task % has 1000 signals that it has not taken', task_id
            using errcode = 'invalid_parameter_value', detail = 'too_many_signals';
    end if;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    values (task.version, gen_random_uuid(), workspace, task_id, 'evt.task.signaled', task.attempt, task.trace_id,
        task.last_message_id, actor,
        json_build_object('task_id', task_id, 'name', name, 'signal_id', new_id, 'actor', actor));
    return grns.deliver_signal(task, new_id, name, value, actor, wakes);
end
$$;

-- Events that tasks wait for. Each is found once, by a service that searches the log, and is sent to its task as a signal of
-- the name `event <step>`, which nothing else sends. `behind` is up to which number the log was searched for this one; null: as far
-- as for all others, which grns.event_cursor says. So nothing is written for a wait while nothing is found.
create table grns.event_waits (
    task_id   text collate "C" not null,
    step      text collate "C" not null,
    workspace text collate "C" not null,
    kind      text not null,
    wanted    jsonb not null,                     -- what the payload has to contain
    about     text collate "C" generated always as (wanted ->> 'task_id') stored,
    behind    bigint,
    primary key (task_id, step)
);
create index event_waits_behind on grns.event_waits (behind) where behind is not null;

create table grns.event_cursor (
    is_one boolean primary key default true check (is_one),
    low    bigint not null default 0
);
insert into grns.event_cursor default values;

-- Sends tasks the first of the events that they wait for, among the numbers of the log above `low` and up to `high`: to those that
-- wait for what is new, or (`is_behind`) to those that were searched up to a place between the two. Answers with how many were sent,
-- and the waits whose tasks are locked, which stay where they are.
create function grns.send_events(low bigint, high bigint, is_behind boolean, out sent integer, out kept text[])
language plpgsql as $$
#variable_conflict use_variable
declare
    found_one record;
    task grns.tasks;
    signal uuid;
begin
    sent := 0;
    kept := '{}';
    for found_one in
        with waits as materialized (
            select w.task_id, w.step, w.workspace, w.kind, w.wanted, w.about, coalesce(w.behind, low) as behind
            from grns.event_waits w
            where case when is_behind then w.behind >= low and w.behind < high else w.behind is null end
        ),
        events as materialized (
            select e.seq, e.message_id, e.workspace, e.kind, e.task_id, e.payload::jsonb as payload, e.created_at
            from grns.events e
            where e.seq > low and e.seq <= high and (e.workspace, e.kind) in (select w.workspace, w.kind from waits w)
        ),
        matches as (
            select w.task_id, w.step, e.seq
            from waits w
            join events e on e.workspace = w.workspace and e.kind = w.kind and e.seq > w.behind
            where w.about is null and e.payload @> w.wanted
            union all
            select w.task_id, w.step, e.seq
            from waits w
            join events e on e.workspace = w.workspace and e.kind = w.kind and e.task_id = w.about and e.seq > w.behind
            where w.about is not null and e.payload @> w.wanted
        ),
        firsts as (
            select m.task_id, m.step, min(m.seq) as seq from matches m group by m.task_id, m.step
        )
        select f.task_id, f.step, e.seq, e.message_id,
            jsonb_build_object('seq', e.seq, 'kind', e.kind, 'task_id', e.task_id, 'payload', e.payload,
                'created_at', e.created_at) as event
        from firsts f
        join events e on e.seq = f.seq
        order by f.task_id, f.step
    loop
        select t.* into task from grns.tasks t where t.id = found_one.task_id for no key update skip locked;
        if not found and exists (select from grns.tasks t where t.id = found_one.task_id) then
            update grns.event_waits w set behind = found_one.seq - 1
            where w.task_id = found_one.task_id and w.step = found_one.step;
            kept := kept || (found_one.task_id || ' ' || found_one.step);
            continue;
        end if;
        signal := md5(found_one.message_id::text || found_one.step)::uuid;
        if task.id is not null and task.finished_at is null
            and not exists (select from grns.signals s where s.task_id = task.id and s.id = signal)
        then
            perform grns.deliver_signal(task, signal, 'event ' || found_one.step, found_one.event, null, true);
            sent := sent + 1;
        end if;
        delete from grns.event_waits w where w.task_id = found_one.task_id and w.step = found_one.step;
    end loop;
end
$$;

-- Searches the log behind `first` for the waits that are there or further on, and not as far as `low`, `most` numbers at a time.
-- Answers with how many events were sent.
create function grns.catch_up_events(first bigint, low bigint, most bigint, out sent integer)
language plpgsql as $$
#variable_conflict use_variable
declare
    last constant bigint := least(first + most, low);
    searched constant text[] := array(
        select w.task_id || ' ' || w.step from grns.event_waits w where w.behind >= first and w.behind < last
        order by w.task_id, w.step
        for update);
    kept text[];
begin
    select s.sent, s.kept into sent, kept from grns.send_events(first, last, true) s;
    -- Those that have come since are searched by the next one.
    update grns.event_waits w set behind = nullif(last, low)
    where (w.task_id || ' ' || w.step) = any (searched) and (w.task_id || ' ' || w.step) <> all (kept);
end
$$;

-- Searches the next `most` numbers of the log, up to `settled`, for all waits; and what is behind it for the waits that are not so far
-- yet: for those that are near, and for one of the others, so that none holds up another. Answers with how many events were
-- sent, and whether there is more to search. One of several callers works at a time.
create function grns.deliver_events(settled bigint, most bigint, out sent integer, out has_more boolean)
language plpgsql as $$
#variable_conflict use_variable
declare
    low bigint;
    high bigint;
    first bigint;
    caught integer;
begin
    sent := 0;
    has_more := false;
    select c.low into low from grns.event_cursor c for update skip locked;
    if not found then
        return;
    end if;
    high := settled;
    if exists (select from grns.event_waits w where w.behind is null) then
        high := least(low + most, settled);
        select s.sent into sent from grns.send_events(low, high, false) s;
    end if;
    if high > low then
        update grns.event_cursor c set low = high;
        low := high;
    end if;
    has_more := low < settled;
    select min(w.behind) into first from grns.event_waits w where w.behind >= low - most and w.behind < low;
    if first is not null then
        select c.sent into caught from grns.catch_up_events(first, low, most) c;
        sent := sent + caught;
    end if;
    select w.behind into first from grns.event_waits w where w.behind < low - most order by random() limit 1;
    if first is not null then
        select c.sent into caught from grns.catch_up_events(first, low, most) c;
        sent := sent + caught;
        has_more := true;
    end if;
    delete from grns.event_waits w using grns.tasks t where t.id = w.task_id and t.finished_at is not null;
end
$$;
