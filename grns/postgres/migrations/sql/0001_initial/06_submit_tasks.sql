-- Submission.
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

-- Unique tasks.
-- The latest task of each key: what is submitted next is merged into it while it waits to begin, or has not ended.
create table grns.unique_keys (
    workspace text collate "C" not null,
    key       text collate "C" not null,          -- pool/type, or pool/type:value
    task_id   text collate "C" not null,
    primary key (workspace, key)
) with (fillfactor = 80);
create index unique_keys_task on grns.unique_keys (task_id);

-- Whether a value is an object as of grns/model/unique.py.
create function grns.is_unique(rule jsonb) returns boolean language sql immutable as $$
    select (jsonb_typeof(rule) = 'object'
        and rule - array['key', 'during', 'on_conflict', 'debounce_seconds', 'debounce_max_seconds'] = '{}'
        and coalesce(rule ->> 'key', 'k') ~ '^[^.]{1,64}(\.[^.]{1,64}){0,7}$'
        and case jsonb_typeof(rule -> 'during')
            when 'number' then (rule ->> 'during')::numeric between 0.001 and 31622400
            else coalesce(rule ->> 'during', 'waiting') in ('waiting', 'unfinished')
        end
        and coalesce(rule ->> 'on_conflict', 'existing') in ('existing', 'refuse', 'replace')
        and (coalesce(rule ->> 'on_conflict', '') <> 'replace' or coalesce(rule ->> 'during', 'waiting') = 'waiting')
        and (num_nonnulls(rule ->> 'debounce_seconds', rule ->> 'debounce_max_seconds') = 0
            or rule ->> 'on_conflict' = 'replace' and jsonb_typeof(rule -> 'debounce_seconds') = 'number'
            and (rule ->> 'debounce_seconds')::numeric between 0.001 and 31622400
            and coalesce(jsonb_typeof(rule -> 'debounce_max_seconds'), 'number') = 'number'
            and coalesce((rule ->> 'debounce_max_seconds')::numeric, 31622400)
                between (rule ->> 'debounce_seconds')::numeric and 31622400)) is true
$$;

-- Merges submissions into tasks that have their unique keys, and returns those, each with its task; `is_refused` if its
-- rule says so. What is not returned is to be created, and its key is locked until the transaction ends: a session
-- that submits the same one waits. A task that waits to begin is locked, too: what was committed with a merged submission is
-- there when the task begins. Of several with one key in one call the first is created, or the last of those that
-- replace.
create function grns.merge_unique(
    ids text[], workspaces text[], task_types text[], agent_types text[], payloads jsonb[], keys text[], traces text[],
    uniques jsonb[], actor text
) returns table (ordinal bigint, task_id text, trace_id text, is_refused boolean) language plpgsql as $$
#variable_conflict use_column
declare
    one record;
    latest text;
    held grns.tasks;
    is_held boolean;
    clock timestamptz;
    due timestamptz;
begin
    for one in
        select n.workspace, n.key, array_agg(n.place order by n.is_replacing desc, n.order_) as places,
            array_agg(n.rule order by n.is_replacing desc, n.order_) as rules
        from (
            select w.place, w.unique_ as rule, r.is_replacing, case when r.is_replacing then -w.place else w.place end as order_,
                coalesce(w.workspace, workspaces[1]) as workspace,
                coalesce(w.agent_type, agent_types[1]) || '/' || coalesce(w.task_type, task_types[1])
                    || case when w.unique_ ->> 'key' is null then '' when octet_length(v.value) > 128 then ':md5-' || md5(v.value)
                        else ':' || v.value end as key
            from unnest(workspaces, task_types, agent_types, payloads, keys, uniques) with ordinality
                as w (workspace, task_type, agent_type, payload, idempotency_key, unique_, place)
            cross join lateral (select w.payload #>> string_to_array(w.unique_ ->> 'key', '.') as value) as v
            cross join lateral (select w.unique_ ->> 'on_conflict' = 'replace' as is_replacing) as r
            where w.unique_ is not null and (w.idempotency_key is null or not exists (
                select from grns.tasks t
                where t.workspace = coalesce(w.workspace, workspaces[1]) and t.idempotency_key = w.idempotency_key))
        ) as n
        group by n.workspace, n.key
        order by n.workspace, n.key  -- keys are taken in one order, so that batches do not deadlock
    loop
        if one.key is null then
            raise exception 'grns: unique: the payload has no value at %', one.rules[1] ->> 'key'
                using errcode = 'invalid_parameter_value', detail = 'bad_submission';
        end if;
        insert into grns.unique_keys as k (workspace, key, task_id) values (one.workspace, one.key, ids[one.places[1]])
        on conflict (workspace, key) do update set task_id = k.task_id
        returning k.task_id into latest;
        is_held := false;
        clock := clock_timestamp();
        if latest = ids[one.places[1]] then
            null;  -- a new key, or this submission again
        elsif coalesce(one.rules[1] ->> 'during', 'waiting') = 'waiting' then
            begin
                select t.* into strict held from grns.tasks t
                where t.id = latest and t.status in ('waiting', 'queued', 'retry_wait')
                for no key update;
                if exists (select from grns.steps s where s.task_id = latest) then
                    raise no_data_found;  -- it has begun: what it has recorded is not read again
                end if;
                is_held := true;
            exception when no_data_found then
                null;  -- what has begun while this waited for its lock is not locked any more
            end;
        else
            select t.* into held from grns.tasks t
            where t.id = latest and case one.rules[1] ->> 'during'
                when 'unfinished' then t.finished_at is null
                else t.created_at > clock - (one.rules[1] ->> 'during')::double precision * interval '1 second' end;
            is_held := found;
        end if;
        if not is_held then
            update grns.unique_keys k set task_id = ids[one.places[1]]
            where k.workspace = one.workspace and k.key = one.key and k.task_id <> ids[one.places[1]];
        elsif one.rules[1] ->> 'on_conflict' = 'replace' then
            due := case when held.waits_for = 'time' and one.rules[1] ? 'debounce_seconds' then greatest(held.next_attempt_at,
                least(clock + (one.rules[1] ->> 'debounce_seconds')::double precision * interval '1 second',
                    held.created_at + coalesce((one.rules[1] ->> 'debounce_max_seconds')::double precision,
                        (one.rules[1] ->> 'debounce_seconds')::double precision * 10) * interval '1 second'))
                else held.next_attempt_at end;
            update grns.tasks t set payload = payloads[one.places[1]], next_attempt_at = due, updated_at = clock
            where t.id = latest;
            insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id,
                actor, payload)
            values (held.version, gen_random_uuid(), held.workspace, latest, 'evt.task.changed', held.attempt, null,
                held.trace_id, held.last_message_id, actor,
                json_build_object('task_id', latest, 'task_type', held.task_type, 'status', held.status,
                    'fields', array_remove(array['payload', case when due <> held.next_attempt_at then 'next_attempt_at' end], null),
                    'priority', held.priority, 'next_attempt_at', due, 'actor', actor, 'reason', 'a submission with its unique key',
                    'before', jsonb_strip_nulls(jsonb_build_object(
                        'next_attempt_at', case when due <> held.next_attempt_at then held.next_attempt_at end))
                        || jsonb_build_object('payload', held.payload)));
        end if;
        return query
        select p.place, case when is_held then latest else ids[one.places[1]] end,
            case when is_held then held.trace_id else traces[one.places[1]] end, p.rule ->> 'on_conflict' = 'refuse'
        from unnest(one.places, one.rules) with ordinality as p (place, rule, nth)
        where is_held or p.nth > 1;
    end loop;
end
$$;

-- Creates tasks with their events, and returns a row for each that it has not created: the task
-- that has its idempotency key (or its id) already, null where that cannot be seen from this transaction;
-- `same` says whether that one is of the same types and payload, `trace_id` is that one's own.
-- Arrays may be shorter than `ids`: what is missing of workspaces, types and priorities is as their first, anything
-- else null. What would become part of a subject or of a message is checked here too, all rows at once: a regular
-- expression for each row costs more than all the rest. `actor` is who asks, for all of them. What is `needy` waits for
-- other tasks, whatever its delay: the caller writes which (see grns.submit_graph). A task that falls under limits waits
-- until it is admitted. `uniques` are rules as of grns.is_unique: what is merged into another task has a row, which is not
-- `same` if the rule refuses it. What is `bounded` is refused while its pool is full, or a budget used up. `wakes` is for transactions that are not
-- ours to commit: no process of grns can tell the relay of them. `labels` are what is said of each, as of grns.labels_of.
create function grns.submit_tasks(
    ids text[], workspaces text[], task_types text[], agent_types text[], priorities smallint[],
    payloads jsonb[], delays double precision[], attempts integer[], keys text[],
    traces text[], causations uuid[], actor text default null, run_ats timestamptz[] default null,
    needy boolean[] default null, wakes boolean default false, uniques jsonb[] default null,
    bounded boolean default false, estimates double precision[] default null, routes text[] default null,
    labels jsonb[] default null
) returns table (ordinal bigint, task_id text, same boolean, trace_id text) language plpgsql as $$
#variable_conflict use_column
declare
    made text[];
    merged bigint[] := '{}';
    hosts text[] := '{}';
    answer record;
    names constant text[] := ids || workspaces || task_types || agent_types;
    events constant text := left(gen_random_uuid()::text, 28);
    -- One time for all rows of a call. Not now(), which is when the caller's transaction began, nor
    -- statement_timestamp(), which in a caller's function or `do` block is when that was called.
    clock constant timestamptz := clock_timestamp();
    has_limits constant boolean := exists (select from grns.limits);
begin
    if array_to_string(names, '') !~ '^[A-Za-z0-9_-]*$' or array_to_string(traces, '') !~ '^[!-~]*$'
        or (select bool_or(length(n.name) not between 1 and 64) from unnest(names) as n (name))
        or (select bool_or(length(t.trace) not between 1 and 128) from unnest(traces) as t (trace))
        or 'instance' = any(agent_types)
        or not (0 <= all(priorities) and 3 >= all(priorities)) or not (1 <= all(attempts) and 1000 >= all(attempts))
        or not (0 <= all(delays) and 31622400 >= all(delays))
        or not (clock + 31622400 * interval '1 second' >= all(run_ats))
        or not (0 < all(estimates) and 527040 >= all(estimates))
        or (select bool_or(r.route !~ '^(|a:[A-Za-z0-9_-]{1,64}|c:[A-Za-z0-9_-]{1,64}(,[A-Za-z0-9_-]{1,64}){0,15})$') from unnest(routes) as r (route))
    then
        raise exception 'grns: a submission has a bad name, trace, priority, delay, estimate, route or number of attempts'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    if bounded and exists (select from grns.pool_quotas q where q.full_since is not null) then
        select q.agent_type, q.max_queued into answer
        from grns.pool_quotas q
        where q.full_since is not null and (q.workspace, q.agent_type) in (
            select coalesce(w.workspace, workspaces[1]), coalesce(w.agent_type, agent_types[1])
            from unnest(ids, workspaces, agent_types) as w (id, workspace, agent_type))
        limit 1;
        if found then
            raise exception 'grns: the pool % is full: % of its tasks are queued', answer.agent_type, answer.max_queued
                using errcode = 'configuration_limit_exceeded', detail = 'backlog_full';
        end if;
    end if;
    if bounded and exists (select from grns.budgets b where b.exceeded_since is not null and b.action = 'refuse') then
        select b.name, b.period into answer
        from grns.budgets b
        where b.exceeded_since is not null and b.action = 'refuse' and b.begins_on = grns.period_begin(b.period)
            and exists (
                select from unnest(ids, workspaces, agent_types, keys) as w (id, workspace, agent_type, key)
                where b.workspace = coalesce(w.workspace, workspaces[1])
                    and b.agent_type in ('', coalesce(w.agent_type, agent_types[1]))
                    and not exists (  -- what is there already may be submitted again
                        select from grns.tasks t where t.workspace = b.workspace and t.idempotency_key = w.key)
                    and not exists (select from grns.tasks t where t.id = w.id))
        limit 1;
        if found then
            raise exception 'grns: the budget % of this % is used up', answer.name, answer.period
                using errcode = 'configuration_limit_exceeded', detail = 'over_budget';
        end if;
    end if;
    if cardinality(uniques) > 0 then
        for answer in
            select * from grns.merge_unique(ids, workspaces, task_types, agent_types, payloads, keys, traces, uniques, actor)
        loop
            merged := merged || answer.ordinal;
            hosts := hosts || answer.task_id;
            return query select answer.ordinal, answer.task_id, not answer.is_refused, answer.trace_id;
        end loop;
    end if;
    with wanted as (
        select w.id, coalesce(w.workspace, workspaces[1]) as workspace,
            coalesce(w.task_type, task_types[1]) as task_type, coalesce(w.agent_type, agent_types[1]) as agent_type,
            coalesce(w.priority, priorities[1]) as priority, w.payload, w.max_attempts, w.key, w.trace_id,
            w.causation_id, w.place, w.is_needy, coalesce(w.route, '') as route,
            case
                when w.is_needy then null
                when w.run_at > clock then w.run_at
                when w.run_at is null and w.delay > 0 then clock + w.delay * interval '1 second'
            end as due_at,
            case when has_limits then (  -- each with its key; keys of more than 128 bytes are told apart by their hash
                select array_agg(p.name || case
                        when p.key_path is null then ''
                        when octet_length(k.key) > 128 then ':md5-' || md5(k.key)
                        else ':' || coalesce(k.key, '') end collate "C" order by p.name)
                from grns.limited_pools p
                cross join lateral (select w.payload #>> p.key_path as key) as k
                where p.workspace = coalesce(w.workspace, workspaces[1])
                    and p.agent_type = coalesce(w.agent_type, agent_types[1])
                    and (p.task_types is null or coalesce(w.task_type, submit_tasks.task_types[1]) = any(p.task_types))
            ) end as limits
        from unnest(ids, workspaces, task_types, agent_types, priorities, payloads, delays, attempts, keys,
                    traces, causations, run_ats, needy, routes) with ordinality
            as w (id, workspace, task_type, agent_type, priority, payload, delay, max_attempts, key,
                  trace_id, causation_id, run_at, is_needy, route, place)
        where w.place <> all(merged)
    ),
    inserted as (
        insert into grns.tasks as t (id, workspace, task_type, agent_type, priority, payload, max_attempts,
            idempotency_key, trace_id, causation_id, last_message_id, status, queued_at, next_attempt_at,
            queued_reason, waits_for, limits, route, created_at, updated_at)
        select w.id, w.workspace, w.task_type, w.agent_type, w.priority, w.payload, w.max_attempts,
            w.key, w.trace_id, w.causation_id, grns.message_id(events, w.place),
            s.status, case s.status when 'queued' then clock end, w.due_at,
            case s.status when 'queued' then 'new_task' end,
            case when w.is_needy then 'tasks' when w.due_at is not null then 'time' when s.status = 'waiting' then 'limit' end,
            w.limits, w.route, clock, clock
        from wanted w
        cross join lateral (
            select case when w.is_needy or w.due_at is not null or w.limits is not null then 'waiting' else 'queued' end as status
        ) as s
        order by w.workspace, w.key, w.place  -- keys are taken in one order, so that batches do not deadlock
        on conflict do nothing
        returning t.id, t.workspace, t.task_type, t.agent_type, t.priority, t.route, t.status, t.trace_id, t.causation_id,
            t.last_message_id, t.next_attempt_at, t.version, t.waits_for
    ),
    logged as (
        insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id,
            causation_id, actor, task_type, payload)
        select i.version, i.last_message_id, i.workspace, i.id,
            case i.status when 'waiting' then 'evt.task.waiting' else 'evt.task.queued' end,
            0, case i.status when 'queued' then grns.command_route(i.agent_type, i.priority, i.route) end, i.trace_id, i.causation_id, actor, i.task_type,
            case i.status
                when 'waiting' then json_build_object('task_id', i.id, 'task_type', i.task_type,
                    'agent_type', i.agent_type, 'priority', i.priority, 'waits_for', i.waits_for,
                    'next_attempt_at', i.next_attempt_at)
                -- by hand: json_build_object looks up how to write each of its arguments, for each row
                else ('{"task_id":"' || i.id || '","task_type":"' || i.task_type || '","agent_type":"' || i.agent_type
                    || '","priority":' || i.priority || ',"reason":"new_task"}')::json
            end
        from inserted i
    )
    select array_agg(i.id) into made from inserted i;
    if cardinality(estimates) > 0 then
        insert into grns.progress (task_id, workspace, minutes)
        select w.id, coalesce(w.workspace, workspaces[1]), w.minutes
        from unnest(ids, workspaces, estimates) as w (id, workspace, minutes)
        where w.minutes is not null and w.id in (select unnest(made));
    end if;
    if num_nonnulls(variadic labels) > 0 then
        perform grns.put_labels(array_agg(w.id), array_agg(coalesce(w.workspace, workspaces[1])), array_agg(w.said))
        from unnest(ids, workspaces, labels) as w (id, workspace, said)
        where w.said is not null and w.id in (select unnest(made));
    end if;
    if wakes and made is not null then
        perform grns.wake_relay();
    end if;
    -- One that was to be created, with others merged into it, may have lost to another task of its idempotency key.
    if hosts && ids and exists (
        select from unnest(hosts) as h (id)
        where h.id <> all(coalesce(made, '{}')) and not exists (select from grns.tasks t where t.id = h.id))
    then
        raise exception 'grns: an idempotency key was taken meanwhile; try again' using errcode = 'serialization_failure';
    end if;

    if coalesce(cardinality(made), 0) + cardinality(merged) = cardinality(ids) then
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
    where w.id <> all(coalesce(made, '{}')) and w.place <> all(merged);
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

-- Refuses payloads with a value where their type has declared a secret: for callers that cannot seal. Paths are such as `auth.*`, with
-- dots between. grns itself does not call it: it seals what the handler at hand declares, which may be less than all pools do.
create function grns.check_sealed(workspace text, task_types text[], payloads jsonb[]) returns void language plpgsql as $$
#variable_conflict use_variable
begin
    if exists (select from grns.task_types k where k.workspace = check_sealed.workspace and k.secret_paths <> '{}') and exists (
        with recursive inner_values (value, path) as (
            select n.payload, string_to_array(s.path, '.')
            from unnest(task_types, payloads) as n (task_type, payload)
            join grns.task_types k on k.workspace = check_sealed.workspace and k.task_type = n.task_type
            cross join unnest(k.secret_paths) as s (path)
            union all
            select m.value, v.path[2:]
            from inner_values v
            cross join lateral (
                select o.key, o.value from jsonb_each(case jsonb_typeof(v.value) when 'object' then v.value else '{}' end) as o
                union all
                select (a.place - 1)::text, a.value
                from jsonb_array_elements(case jsonb_typeof(v.value) when 'array' then v.value else '[]' end)
                    with ordinality as a (value, place)
            ) as m
            where v.path[1] in (m.key, '*')
        )
        select from inner_values v
        where v.path = '{}' and v.value <> 'null'
    ) then
        raise exception 'grns: payload: it has a secret, which SQL cannot seal: submit the task with a client, or over HTTP'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
end
$$;

-- Creates one task and returns its id: for any language, inside the caller's own transaction. What is refused
-- has the SQLSTATE 22023, and as its detail the word that the client raises too (`bad_submission`, `too_deep`, …).
create function grns.submit_task(
    task_type text, payload jsonb default '{}', agent_type text default 'worker', priority integer default 2,
    delay_seconds double precision default 0, max_attempts integer default null,
    idempotency_key text default null, trace_id text default null, causation_id uuid default null,
    workspace text default 'default', run_at timestamptz default null, uniqueness jsonb default null,
    needs text[] default null, estimated_duration_minutes double precision default null,
    target_agent text default null, required_capabilities text[] default null, title text default null,
    description text default null, tags text[] default null, metadata jsonb default null, created_by text default null,
    backoff jsonb default null
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
    said constant jsonb := case when num_nonnulls(title, description, tags, metadata, created_by, backoff) > 0 then grns.labels_of(
        jsonb_build_object('title', title, 'description', description, 'tags', to_jsonb(tags), 'metadata', metadata,
            'created_by', created_by, 'backoff', backoff)) end;
begin
    wrong := case
        when (task_type ~ token and agent_type ~ token and workspace ~ token and agent_type <> 'instance') is not true
            then 'task_type, agent_type and workspace are 1 to 64 of A-Z a-z 0-9 _ - (and agent_type is not instance)'
        when (priority between 0 and 3) is not true then 'priority is 0 (critical) to 3 (background)'
        when (delay_seconds between 0 and 31622400) is not true then 'delay_seconds is 0 to 366 days'
        when run_at is not null and delay_seconds > 0 then 'run_at: pass either a time or delay_seconds'
        when run_at > clock_timestamp() + interval '366 days' then 'run_at is at most 366 days from now'
        when uniqueness is not null and not grns.is_unique(uniqueness) then 'uniqueness is an object of key, during (waiting, unfinished or seconds), '
            'on_conflict (existing, refuse, or replace with waiting), debounce_seconds and debounce_max_seconds (with replace)'
        when uniqueness is not null and needs is not null then 'needs: a task that needs others has no uniqueness'
        when not (estimated_duration_minutes > 0 and estimated_duration_minutes <= 527040)
            then 'estimated_duration_minutes is more than 0 and at most 366 days'
        when target_agent !~ token or array_to_string(required_capabilities, ',') !~ '^(|[A-Za-z0-9_-]{1,64}(,[A-Za-z0-9_-]{1,64}){0,15})$'
            then 'target_agent and each of at most 16 required_capabilities are 1 to 64 of A-Z a-z 0-9 _ -'
        when target_agent is not null and cardinality(required_capabilities) > 0
            then 'required_capabilities: pass either an agent or capabilities'
        when max_attempts not between 1 and 1000 then 'max_attempts is 1 to 1000'
        when idempotency_key !~ '^[ -~]{1,255}$' then 'idempotency_key is 1 to 255 printable ASCII characters'
        when trace !~ '^[!-~]{1,128}$' then 'trace_id is 1 to 128 printable ASCII characters'
        when cause = '00000000-0000-0000-0000-000000000000' then 'causation_id: the nil UUID names no message'
    end;
    if wrong is not null then
        raise exception 'grns: %', wrong using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    if cardinality(needs) > 0 then
        return (
            select g.task_id
            from grns.submit_graph(jsonb_build_array(coalesce(said, '{}') || jsonb_build_object('task_type', task_type, 'payload', payload,
                'agent_type', agent_type, 'priority', priority, 'delay_seconds', delay_seconds, 'run_at', run_at,
                'max_attempts', max_attempts, 'idempotency_key', idempotency_key, 'trace_id', trace, 'causation_id', cause,
                'estimated_duration_minutes', estimated_duration_minutes,
                'target_agent', target_agent, 'required_capabilities', required_capabilities,
                'needs', (select jsonb_agg(jsonb_build_object('task', n.id)) from unnest(needs) as n (id)))), workspace) as g);
    end if;
    perform grns.check_payload(payload);
    perform grns.check_sealed(workspace, array[task_type], array[payload]);
    select * into answer from grns.submit_tasks(
        array[new_id], array[workspace], array[task_type], array[agent_type], array[priority::smallint],
        array[payload],
        array[case when run_at is null and delay_seconds = 0
            then coalesce((uniqueness ->> 'debounce_seconds')::double precision, 0) else delay_seconds end],
        array[max_attempts], array[idempotency_key],
        array[coalesce(trace, replace(gen_random_uuid()::text, '-', ''))], array[cause],
        run_ats => array[run_at], wakes => true,
        uniques => case when uniqueness is not null then array[uniqueness] end, bounded => true,
        estimates => case when estimated_duration_minutes is not null then array[estimated_duration_minutes] end,
        routes => array[grns.route_to(target_agent, required_capabilities)], labels => case when said is not null then array[said] end);
    if not found then
        return new_id;
    elsif answer.task_id is null then
        raise exception 'grns: idempotency_key % is taken by a task that this transaction cannot see', idempotency_key
            using errcode = 'serialization_failure';
    elsif not answer.same and uniqueness ->> 'on_conflict' = 'refuse' then
        raise exception 'grns: task % has the same unique key', answer.task_id using errcode = 'unique_violation';
    elsif not answer.same then
        raise exception 'grns: idempotency_key % belongs to task %, which is another one', idempotency_key,
            answer.task_id using errcode = 'unique_violation';
    end if;
    return answer.task_id;
end
$$;
