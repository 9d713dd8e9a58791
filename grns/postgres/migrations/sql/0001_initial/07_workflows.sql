-- Tasks that need others.
-- What a task needs. Both sides only commit their fact, the need and the end; the follower of the log acts on whichever
-- it reads last (grns/workflows/sql/follow_log.sql). Only it writes `ended_as`.
create table grns.needs (
    task_id   text collate "C" not null,
    needs     text collate "C" not null,
    workspace text collate "C" not null,
    name      text,                               -- by which the task asks for the result; null: none
    outcome   text not null default 'success',
    ended_as  text,                               -- null: not ended, or not seen yet; 'added': not counted yet
    primary key (task_id, needs),
    constraint needs_outcome check (outcome in ('success', 'failure', 'end')),
    constraint needs_ended_as
        check (ended_as in ('succeeded', 'failed', 'dead', 'cancelled', 'skipped', 'deleted', 'added'))
) with (fillfactor = 80);
create index needs_needed on grns.needs (needs);
create index needs_added on grns.needs (task_id) where ended_as = 'added';

-- How far the needs of a task are met. Its counts are those of grns.needs, kept by the statement that writes these.
create table grns.waits (
    task_id   text collate "C" primary key,
    workspace text collate "C" not null,
    open      integer not null,                   -- how many of its needs have not ended
    met       integer not null default 0,         -- how many have ended as they should
    broken    integer not null default 0,         -- how many have failed it; the rest were not to be
    required  integer not null,                   -- how many must be met
    run_at    timestamptz,                        -- it waits until then, too
    until     timestamptz,                        -- its handler waits until then at most
    workflow_id text collate "C",                 -- whose task it is: while that is paused, it is not queued
    ended_by  uuid,                               -- the event by which the follower ended it, last; it may undo that
    is_skipped boolean not null default false     -- whether that was because nothing was to be done
) with (fillfactor = 50);

-- Whether the follower can submit a task, as an escalation or a follow-up: grns.submit_tasks refuses any other, which would stop it. Nothing
-- keeps a blob that its payload refers to, and nothing rotates a secret in it.
create function grns.is_automatic_task(task jsonb) returns boolean language sql immutable as $$
    select (task ->> 'task_type' ~ '^[A-Za-z0-9_-]{1,64}$' and task ->> 'agent_type' ~ '^[A-Za-z0-9_-]{1,64}$'
        and task ->> 'agent_type' <> 'instance' and task ->> 'priority' ~ '^[0-3]$'
        and coalesce(task ->> 'max_attempts', '1') ~ '^([1-9][0-9]{0,2}|1000)$'
        and jsonb_typeof(task -> 'payload') = 'object'
        and not task -> 'payload' @? '$.**."$blob"' and not task -> 'payload' @? '$.**."$secret"') is true
$$;

-- Tasks that were submitted together. A workflow needs each of its tasks to succeed: its rows in grns.needs and grns.waits
-- are those of a task, but for its last tasks, which need the workflow. The follower sets its status. While it is paused, no
-- task of it is queued because its needs are met; once it is to be cancelled, such a task is ended instead.
-- Until it is sealed, it needs itself, too, and tasks may be added to it, under a share lock of its row.
create table grns.workflows (
    id           text collate "C" primary key,
    workspace    text collate "C" not null,
    name         text collate "C" not null,
    status       text not null default 'running',
    trace_id     text not null,
    created_at   timestamptz not null default clock_timestamp(),
    created_by   text,
    sealed_at    timestamptz,                     -- null: more tasks may be added
    ended_at     timestamptz,
    paused_at    timestamptz,
    paused_by    text,
    pause_reason text,
    cancel_requested_at timestamptz,
    fail_count   integer,                         -- after so many failed tasks, or such a share of those that have
    fail_share   double precision,                -- ended, if so many have, it is paused, or its tasks are cancelled;
    fail_least   integer not null default 1,      -- once, and the escalation is submitted: a task
    fail_action  text,
    escalation   jsonb,
    stopped_at   timestamptz,                     -- when that was
    escalation_task_id text collate "C",          -- the id of that task
    version      integer not null default 1,
    constraint workflows_failures check (
        num_nonnulls(fail_count, fail_share) = least(num_nonnulls(fail_action, escalation), 1)
        and fail_action in ('pause', 'cancel', 'notify')
        and fail_count > 0 and fail_share > 0 and fail_share <= 1 and fail_least > 0),
    constraint workflows_escalation check (
        escalation is null or (grns.is_automatic_task(escalation) and trace_id ~ '^[!-~]{1,128}$')),
    constraint workflows_status check (
        case status when 'running' then ended_at is null
            else status in ('succeeded', 'failed', 'cancelled') and num_nulls(sealed_at, ended_at) = 0 and paused_at is null end)
) with (fillfactor = 80);
create index workflows_listed on grns.workflows (workspace, id);
create index workflows_running on grns.workflows (id) where ended_at is null;
create index workflows_ended on grns.workflows (ended_at) where ended_at is not null;

-- Whether a workflow holds back its tasks.
create function grns.is_paused(workflow_id text) returns boolean language sql stable as $$
    select exists (
        select from grns.workflows k
        where k.id = $1 and k.ended_at is null and k.paused_at is not null and k.cancel_requested_at is null)
$$;

-- What a workflow counts goes with it.
create function grns.forget_workflows() returns trigger language plpgsql as $$
begin
    delete from grns.needs e where e.task_id = any(array(select g.id from gone g));
    delete from grns.waits w where w.task_id = any(array(select g.id from gone g));
    return null;
end
$$;
create trigger workflows_gone after delete on grns.workflows
    referencing old table as gone for each statement execute function grns.forget_workflows();

-- Decided tasks that another session had locked: tried again with each reading.
create table grns.follow_later (
    task_id text collate "C" primary key
);

create function grns.is_met(outcome text, ended_as text) returns boolean language sql immutable as $$
    select (case outcome
        when 'success' then ended_as = 'succeeded'
        when 'failure' then ended_as in ('failed', 'dead', 'cancelled')
        else ended_as <> 'added'
    end) is true
$$;
-- Whether a need has failed the task; otherwise there is nothing to be done, as on a branch that was not taken.
create function grns.is_broken(outcome text, ended_as text) returns boolean language sql immutable as $$
    select (outcome = 'success' and ended_as in ('failed', 'dead', 'cancelled', 'deleted')
        or outcome = 'failure' and ended_as = 'deleted') is true
$$;

-- Undoes what the follower has read of a task that began to wait for others meanwhile: it reads the same again.
create function grns.refuse_stale() returns boolean language plpgsql as $$
begin
    raise exception 'grns: a task began to wait meanwhile' using errcode = 'lock_not_available';
end
$$;

-- How far the follower has read the log.
create table grns.follow_cursor (
    id         integer primary key default 1 check (id = 1),
    moves      bigint not null default 0,
    low        bigint not null default 0,
    followed   int8multirange not null default '{}',
    updated_at timestamptz not null default now()
) with (fillfactor = 10);
insert into grns.follow_cursor default values;

-- Whether a task waits for another one, through others perhaps, and for nothing but these: it looks at 1,000 of them.
create function grns.waits_for_task(waiter text, target text) returns boolean language sql stable as $$
    with recursive behind (id, is_first) as (
        select waiter collate "C", true
        union
        select e.needs, false
        from behind b
        join grns.waits w on w.task_id = b.id
        join grns.needs e on e.task_id = b.id and (e.ended_as is null or e.ended_as = 'added')
        -- an open workflow needs its seal, too
        left join grns.needs s on s.task_id = b.id and s.needs = b.id and s.ended_as is null
        where w.met + w.open <= w.required + num_nonnulls(s.needs) and (exists (
                select from grns.tasks t
                where t.id = b.id and t.status = 'waiting' and t.waits_for = 'tasks' and t.next_attempt_at is null)
            or exists (select from grns.workflows k where k.id = b.id and k.ended_at is null))
    )
    select exists (select from (select b.* from behind b limit 1000) as f where f.id = target and not f.is_first)
$$;

-- Whether one of some tasks needs a task or a workflow, itself or through others: it looks at 10,000 of them.
create function grns.depend_on(ids text[], target text) returns boolean language sql stable as $$
    with recursive behind (id) as (
        select unnest(ids) collate "C"
        union
        select e.needs from behind b
        join grns.needs e on e.task_id = b.id and (e.ended_as is null or e.ended_as = 'added')
    )
    select exists (select from (select b.* from behind b limit 10000) as f where f.id = target)
$$;

create function grns.workflow_lock(workflow_id text) returns bigint language sql immutable as $$
    select hashtextextended('grns.workflows ' || workflow_id, 0)
$$;

-- Locks a workflow to which tasks are added: until the transaction has ended it is neither sealed nor stopped.
create function grns.lock_open_workflow(workflow_id text, workspace text) returns grns.workflows language plpgsql as $$
#variable_conflict use_variable
declare
    found_one grns.workflows;
begin
    -- Who seals or changes it takes this lock alone, and is not overtaken.
    perform pg_advisory_xact_lock_shared(grns.workflow_lock(workflow_id));
    select k.* into found_one from grns.workflows k where k.id = workflow_id and k.workspace = workspace for share;
    if not found then
        raise exception 'grns: there is no workflow % in workspace %', workflow_id, workspace
            using errcode = 'invalid_parameter_value', detail = 'not_found';
    elsif found_one.sealed_at is not null then
        raise exception 'grns: workflow % is sealed: it takes no more tasks', workflow_id
            using errcode = 'invalid_parameter_value', detail = 'workflow_sealed';
    end if;
    return found_one;
end
$$;

-- Creates tasks that need each other, or tasks that exist, all or none, in the caller's transaction. `tasks` is an array of
-- objects: task_type, payload, agent_type, priority, delay_seconds, run_at, max_attempts, idempotency_key, trace_id,
-- causation_id, estimated_duration_minutes, title, description, tags, metadata, created_by, backoff, as of grns.submit_task; `id` (null: a new one); `name`; `needs`, an array of {task, outcome, name}, where
-- `task` is the name or the id of a task that stands before it, or the id of one that exists, and `outcome` success (default),
-- failure or end; `required`, how many of the needs must be met (null: all). With a `workflow`, an object of name, id
-- and trace_id (null: new ones; its tasks have that trace, too), they are its tasks, but for those with `is_last`, which may need the workflow. Its
-- `fail_after`, an object of count, or of share and of_at_least (1), and `then`, says when it is stopped: `then` is cancel
-- (default), pause or notify, or a task that is submitted then, an object of task_type, payload, agent_type, priority (0) and
-- max_attempts; or an array of both. With `is_open`, tasks may be added to the workflow until grns.seal_workflow: by another call
-- with its `id` and `extends`.
-- Returns a row for each task, in order; `created` is false where its idempotency key belongs to a task like it.
-- What is refused has the SQLSTATE 22023, with `bad_submission`, `unknown_need`, `dependency_cycle` or a word of
-- grns.check_payload as its detail.
create function grns.submit_graph(
    tasks jsonb, workspace text default 'default', actor text default null, workflow jsonb default null, is_sealed boolean default false
) returns table (name text, task_id text, created boolean, trace_id text) language plpgsql
-- The sessions of grns do without: here each array would be compared with each other one.
set enable_hashjoin = on as $$
#variable_conflict use_column
declare
    wrong text;
    is_cycle boolean := false;
    answer record;
    clock constant timestamptz := clock_timestamp();
    -- One entry for each task.
    ids text[]; names text[]; types text[]; pools text[]; ranks smallint[]; payloads jsonb[]; delays double precision[];
    attempts integer[]; keys text[]; traces text[]; causes uuid[]; times timestamptz[]; needy boolean[]; least integer[];
    existed boolean[]; last boolean[]; estimates double precision[]; routes text[];
    flow_id constant text := coalesce(workflow ->> 'id', overlay(grns.new_task_id() placing 'wf' from 1));
    flow_trace text := case when workflow is not null then coalesce(workflow ->> 'trace_id',
        nullif(current_setting('grns.trace_id', true), ''), replace(gen_random_uuid()::text, '-', '')) end;
    is_open constant boolean := coalesce((workflow ->> 'is_open')::boolean, false);
    extends constant boolean := coalesce((workflow ->> 'extends')::boolean, false);
    extended grns.workflows;
    fail_after constant jsonb := nullif(workflow -> 'fail_after', 'null');
    actions constant jsonb := case jsonb_typeof(fail_after -> 'then')
        when 'array' then fail_after -> 'then' when 'null' then '["cancel"]'
        else jsonb_build_array(coalesce(fail_after -> 'then', '"cancel"')) end;
    escalation jsonb;
    -- One entry for each need: the place of its task, the id that it needs, and the place of that, if it is in the graph.
    owners bigint[]; needed text[]; befores bigint[]; labels text[]; outcomes text[];
begin
    if jsonb_typeof(tasks) is distinct from 'array' or jsonb_array_length(tasks) > 10000
        or jsonb_array_length(tasks) = 0 and not is_open
    then
        raise exception 'grns: a graph is an array of 1 to 10,000 tasks'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    if extends then
        extended := grns.lock_open_workflow(flow_id, workspace);
        flow_trace := extended.trace_id;
        if (select w.required from grns.waits w where w.task_id = flow_id) + jsonb_array_length(tasks) > 100000 then
            raise exception 'grns: a workflow has at most 100,000 tasks: open another one'
                using errcode = 'invalid_parameter_value', detail = 'bad_submission';
        end if;
    end if;
    select array_agg(t.id order by t.place), array_agg(t.name order by t.place),
        array_agg(t.task_type order by t.place), array_agg(coalesce(t.agent_type, 'worker') order by t.place),
        array_agg(coalesce(t.priority, 2::smallint) order by t.place),
        array_agg(coalesce(t.payload, '{}') order by t.place),
        array_agg(coalesce(t.delay_seconds, 0) order by t.place), array_agg(t.max_attempts order by t.place),
        array_agg(t.idempotency_key order by t.place),
        array_agg(coalesce(t.trace_id, flow_trace, nullif(current_setting('grns.trace_id', true), ''),
            replace(gen_random_uuid()::text, '-', '')) order by t.place),
        array_agg(coalesce(t.causation_id, nullif(current_setting('grns.causation_id', true), '')::uuid)
            order by t.place),
        array_agg(t.run_at order by t.place), array_agg(t.required order by t.place),
        array_agg(t.is_last is true order by t.place), array_agg(t.estimated_duration_minutes order by t.place),
        array_agg(grns.route_to(t.target_agent, t.required_capabilities) order by t.place),
        array_agg(jsonb_typeof(t.needs) = 'array' and jsonb_array_length(t.needs) > 0 is true order by t.place)
    into ids, names, types, pools, ranks, payloads, delays, attempts, keys, traces, causes, times, least, last, estimates, routes, needy
    from rows from (jsonb_to_recordset(tasks) as (id text, name text, task_type text, payload jsonb, agent_type text,
        priority smallint, delay_seconds double precision, run_at timestamptz, max_attempts integer, idempotency_key text,
        trace_id text, causation_id uuid, needs jsonb, required integer, is_last boolean, estimated_duration_minutes double precision,
        target_agent text, required_capabilities text[])
    ) with ordinality as t (id, name, task_type, payload, agent_type, priority, delay_seconds, run_at, max_attempts,
        idempotency_key, trace_id, causation_id, needs, required, is_last, estimated_duration_minutes, target_agent, required_capabilities, place);
    -- New ids are in the order of the tasks, in which they are listed.
    if array_position(ids, null) is not null then
        select array_agg(coalesce(t.id, n.id) order by t.place) into ids
        from unnest(ids) with ordinality as t (id, place)
        join (
            select m.id, row_number() over (order by m.id collate "C") as place
            from (select grns.new_task_id() as id from generate_series(1, cardinality(ids))) as m
        ) as n using (place);
    end if;
    -- Joined, here and below: an element of an array of texts is found by reading all before it.
    select array_agg(t.place), array_agg(coalesce(b.id, n.task)), array_agg(coalesce(b.place, i.place)),
        array_agg(coalesce(n.name, i.name, n.task)), array_agg(coalesce(n.outcome, 'success'))
    into owners, needed, befores, labels, outcomes
    from rows from (jsonb_to_recordset(tasks) as (needs jsonb)) with ordinality as t (needs, place)
    cross join lateral jsonb_to_recordset(case when needy[t.place] then t.needs else '[]' end)
        as n (task text, outcome text, name text)
    left join unnest(names, ids) with ordinality as b (name, id, place) on b.name = n.task
    left join unnest(ids, names) with ordinality as i (id, name, place) on i.id = n.task;

    -- Two that add a task each, which needs the other's workflow, would not see each other.
    if extends and exists (
        select from unnest(needed, befores) as n (needs, before)
        where n.before is null and not exists (
            select from grns.needs m where m.task_id = flow_id and m.needs = n.needs)
    ) then
        perform pg_advisory_xact_lock(grns.workflow_lock('of ' || workspace));
    end if;
    select jsonb_build_object('task_type', a.task ->> 'task_type', 'agent_type', coalesce(a.task ->> 'agent_type', 'worker'),
        'priority', coalesce(nullif(a.task -> 'priority', 'null'), '0'), 'max_attempts', a.task -> 'max_attempts',
        'payload', coalesce(a.task -> 'payload', '{}'))
    into escalation
    from jsonb_array_elements(actions) as a (task)
    where fail_after is not null and jsonb_typeof(a.task) = 'object';

    wrong := case
        when array_position(types, null) is not null then 'each task has a task_type'
        when (select count(distinct n.name) < count(n.name) from unnest(names) as n (name))
            then 'two tasks have the same name'
        when (select bool_or(k.key !~ '^[ -~]{1,255}$') from unnest(keys) as k (key))
            then 'idempotency_key is 1 to 255 printable ASCII characters'
        when array_position(needed, null) is not null then 'each need names a task'
        when not outcomes <@ array['success', 'failure', 'end'] then 'the outcome of a need is success, failure or end'
        when (select count(distinct (n.owner, n.needs)) < count(*) from unnest(owners, needed) as n (owner, needs))
            then 'a task needs another one twice'
        when (select bool_or((r.least between 1 and r.needs) is false)
                from (select p.least, count(n.owner) as needs
                    from unnest(least) with ordinality as p (least, place)
                    left join unnest(owners) as n (owner) on n.owner = p.place
                    group by p.place, p.least) as r)
            then 'required is 1 up to the number of needs'
        when extends and (true = any(last) or fail_after is not null or is_open)
            then 'last tasks, fail_after and is_open are of a new workflow'
        when workflow is not null and not extends and (workflow ->> 'name' ~ '^[ -~]{1,255}$' and flow_id ~ '^wf-[a-z0-9]{26}$') is not true
            then 'a workflow has a name of 1 to 255 printable ASCII characters'
        when workflow ->> 'trace_id' !~ '^[!-~]{1,128}$' then 'trace_id is 1 to 128 printable ASCII characters'
        when fail_after is not null and not (
                jsonb_typeof(fail_after) = 'object'
                and num_nonnulls(fail_after ->> 'count', fail_after ->> 'share') = 1
                and coalesce((fail_after ->> 'count')::integer, 1) > 0
                and coalesce((fail_after ->> 'share')::double precision, 1) between 0.000001 and 1
                and coalesce((fail_after ->> 'of_at_least')::integer, 1) > 0
                and (select count(*) between 1 and 2 and count(*) = count(distinct jsonb_typeof(a.task))
                        and bool_and(a.task in ('"cancel"', '"pause"', '"notify"') or jsonb_typeof(a.task) = 'object')
                    from jsonb_array_elements(actions) as a (task)))
            then 'fail_after has a count, or a share of 1 at most, and `then` is cancel, pause or notify, a task, or one of both'
        when escalation is not null and not grns.is_automatic_task(escalation)
            then 'fail_after: the task of `then` has a task_type, an agent_type, a priority of 0 to 3, max_attempts of 1 to 1000, and a payload without `$blob` and `$secret`'
        when workflow is null and true = any(last) then 'only the tasks of a workflow can be its last ones'
        when false <> all(last) and not is_open then 'a workflow has tasks besides its last ones'
        when exists (select from unnest(owners, befores) as n (owner, before) where not last[n.owner] and last[n.before])
            or (select bool_or(n.needs = flow_id and not last[n.owner]) from unnest(owners, needed) as n (owner, needs))
            or extends and grns.depend_on(array(select n.needs from unnest(needed, befores) as n (needs, before)
                where n.before is null), flow_id)
            then 'the tasks of a workflow cannot need its last ones, nor itself'
    end;
    select format('task %s needs %s, which stands behind it', coalesce(names[n.owner], n.owner::text),
            coalesce(names[n.before], n.before::text)),
        exists (
            with recursive behind (place) as (
                select n.before
                union
                select e.before from behind h join unnest(owners, befores) as e (owner, before) on e.owner = h.place
                where e.before is not null
            )
            select from behind h where h.place = n.owner)
    into answer
    from unnest(owners, befores) as n (owner, before)
    where n.before >= n.owner
    limit 1;
    if found and wrong is null then
        wrong := answer.format || case when answer.exists
            then ' and needs it in turn' else ': a task stands behind those that it needs' end;
        is_cycle := answer.exists;
    end if;
    if wrong is not null then
        raise exception 'grns: %', wrong using errcode = 'invalid_parameter_value',
            detail = case when is_cycle then 'dependency_cycle' else 'bad_submission' end;
    end if;
    perform grns.check_payload(p.payload) from unnest(payloads) as p (payload);
    if escalation is not null then
        perform grns.check_payload(escalation -> 'payload');
    end if;
    if not is_sealed then
        perform grns.check_sealed($2, types || (escalation ->> 'task_type'), payloads || (escalation -> 'payload'));
    end if;
    -- Nothing deletes them until this transaction has ended; a worker may end them meanwhile.
    select n.id into wrong
    from (select distinct e.needs as id from unnest(needed, befores) as e (needs, before)
        where e.before is null and (workflow is null or e.needs <> flow_id)) as n
    left join lateral (
        select o.id from grns.tasks o where o.id = n.id and o.workspace = $2 for key share
    ) as t on true
    left join lateral (
        select o.id from grns.workflows o where o.id = n.id and o.workspace = $2 for key share
    ) as w on true
    where t.id is null and w.id is null
    limit 1;
    if found then
        raise exception 'grns: there is no task % to need: it must be committed, or stand in the same graph', wrong
            using errcode = 'invalid_parameter_value', detail = 'unknown_need';
    end if;

    for answer in
        select * from grns.submit_tasks(ids, array[workspace], types, pools, ranks, payloads, delays, attempts, keys,
            traces, causes, actor, times, needy, true, bounded => true,
            estimates => case when num_nonnulls(variadic estimates) > 0 then estimates end, routes => routes,
            labels => (
                select array_agg(
                    case when e.task ?| array['title', 'description', 'tags', 'metadata', 'created_by', 'backoff']
                        then grns.labels_of(e.task) end
                    order by e.place)
                from jsonb_array_elements(tasks) with ordinality as e (task, place)))
        where ids is not null  -- of an open workflow that begins without tasks
    loop
        if answer.task_id is null then
            raise exception 'grns: idempotency_key % is taken by a task that this transaction cannot see',
                keys[answer.ordinal] using errcode = 'serialization_failure';
        elsif not answer.same then
            raise exception 'grns: idempotency_key % belongs to task %, which is another one', keys[answer.ordinal],
                answer.task_id using errcode = 'unique_violation';
        end if;
        ids[answer.ordinal] := answer.task_id;
        traces[answer.ordinal] := answer.trace_id;
        existed[answer.ordinal] := true;
    end loop;
    if true = any(existed) then
        -- Retention deletes none of them until the graph needs it.
        perform from grns.tasks t
        join (select e.id from unnest(ids, existed) as e (id, existed) where e.existed) as e on e.id = t.id
        order by t.id
        for key share of t;
        if (select count(distinct e.id) from unnest(ids, existed) as e (id, existed) where e.existed) <> (
            select count(*) from grns.tasks t where t.id = any(array(
                select e.id from unnest(ids, existed) as e (id, existed) where e.existed)))
        then
            raise exception 'grns: a task with one of these idempotency keys was deleted meanwhile'
                using errcode = 'serialization_failure';
        elsif extends and grns.depend_on(
            array(select e.id from unnest(ids, existed) as e (id, existed) where e.existed), flow_id)
        then
            raise exception 'grns: a task with one of these idempotency keys needs the workflow %', flow_id
                using errcode = 'invalid_parameter_value', detail = 'dependency_cycle';
        end if;
    end if;
    insert into grns.needs (task_id, needs, workspace, name, outcome)
    select o.id, coalesce(b.id, n.needs), $2, n.label, n.outcome
    from unnest(owners, needed, befores, labels, outcomes) as n (owner, needs, before, label, outcome)
    join unnest(ids, existed) with ordinality as o (id, existed, place) on o.place = n.owner
    left join unnest(ids) with ordinality as b (id, place) on b.place = n.before
    where o.existed is not true;
    insert into grns.waits (task_id, workspace, open, required, run_at, workflow_id)
    select o.id, $2, count(*), coalesce(o.least, count(*)),
        coalesce(o.run_at, case when o.delay > 0 then clock + o.delay * interval '1 second' end),
        case when workflow is not null and not o.is_last then flow_id end
    from unnest(owners) as n (owner)
    join unnest(ids, existed, least, times, delays, last) with ordinality
        as o (id, existed, least, run_at, delay, is_last, place) on o.place = n.owner
    where o.existed is not true
    group by o.place, o.id, o.least, o.run_at, o.delay, o.is_last;
    if extends then
        insert into grns.needs (task_id, needs, workspace, name, ended_as)
        select flow_id, p.id, $2, coalesce(p.name, p.id), 'added'
        from unnest(ids, names) as p (id, name)
        order by p.id collate "C"
        on conflict do nothing;  -- a task that the workflow has already
        insert into grns.events (version, workspace, task_id, kind, trace_id, actor, payload)
        select extended.version, extended.workspace, flow_id, 'evt.workflow.extended', extended.trace_id, actor,
            json_build_object('workflow_id', flow_id, 'name', extended.name, 'added', cardinality(ids));
    elsif workflow is not null then
        insert into grns.workflows (id, workspace, name, sealed_at, trace_id, created_by, fail_count, fail_share, fail_least,
            fail_action, escalation)
        select flow_id, $2, workflow ->> 'name', case when not is_open then clock end,
            coalesce(workflow ->> 'trace_id', traces[1], flow_trace), actor, f.count, f.share, coalesce(f.of_at_least, 1),
            case when fail_after is not null then
                (select a.task #>> '{}' from jsonb_array_elements(actions) as a (task) where jsonb_typeof(a.task) = 'string')
            end,
            escalation
        from jsonb_to_record(coalesce(fail_after, '{}')) as f (count integer, share double precision, of_at_least integer);
        insert into grns.needs (task_id, needs, workspace, name)
        select flow_id, p.id, $2, coalesce(p.name, p.id)
        from unnest(ids, names, last) as p (id, name, is_last)
        where not p.is_last
        union all
        select flow_id, flow_id, $2, null where is_open;
        insert into grns.waits (task_id, workspace, open, required)
        select flow_id, $2, c.total + is_open::integer, c.total
        from (select count(*) filter (where not l) as total from unnest(last) as l) as c;
        insert into grns.events (version, workspace, task_id, kind, trace_id, actor, payload)
        select 1, k.workspace, k.id, 'evt.workflow.started', k.trace_id, actor,
            json_build_object('workflow_id', k.id, 'name', k.name, 'status', k.status, 'total', w.required)
        from grns.workflows k
        join grns.waits w on w.task_id = k.id
        where k.id = flow_id;
    end if;
    return query
    select p.name, p.id, p.existed is not true, p.trace
    from unnest(names, ids, traces) with ordinality as o (name, id, trace, place)
    join unnest(ids, existed) with ordinality as e (id, existed, place) using (place)
    cross join lateral (select o.name, o.id, e.existed, o.trace) as p
    order by place;
end
$$;

-- Seals a workflow to which tasks could be added, for any language, inside the caller's own transaction: it ends once all of its
-- tasks have. Answers whether it was open. What is refused has the SQLSTATE 22023, with `not_found` as its detail.
create function grns.seal_workflow(workflow_id text, workspace text default 'default', actor text default null)
returns boolean language plpgsql as $$
#variable_conflict use_variable
declare
    sealed grns.workflows;
begin
    perform pg_advisory_xact_lock(grns.workflow_lock(workflow_id));
    update grns.workflows k set sealed_at = clock_timestamp(), version = k.version + 1
    where k.id = workflow_id and k.workspace = workspace and k.sealed_at is null
    returning k.* into sealed;
    if found then
        insert into grns.events (version, workspace, task_id, kind, trace_id, actor, payload)
        select sealed.version, sealed.workspace, sealed.id, 'evt.workflow.sealed', sealed.trace_id, actor,
            json_build_object('workflow_id', sealed.id, 'name', sealed.name, 'status', sealed.status, 'total', w.required,
                'succeeded', w.met, 'failed', w.broken, 'actor', actor)
        from grns.waits w where w.task_id = sealed.id;
        return true;
    elsif not exists (select from grns.workflows k where k.id = workflow_id and k.workspace = workspace) then
        raise exception 'grns: there is no workflow % in workspace %', workflow_id, workspace
            using errcode = 'invalid_parameter_value', detail = 'not_found';
    end if;
    return false;
end
$$;
