-- Whether a value is a list of follow-ups as of grns.submit_follow_ups.
create function grns.are_follow_ups(said jsonb) returns boolean language sql immutable as $$
    select jsonb_typeof(said) = 'array' and (
        select coalesce(bool_and(f ->> 'outcome' in ('success', 'failure') is true and grns.is_automatic_task(f)), true)
        from jsonb_array_elements(case jsonb_typeof(said) when 'array' then said else '[]' end) as n (f)
    )
$$;

-- Task types of a pool that are published (clients of MCP get each as a tool), have secrets in their payloads, or follow-ups.
-- Workers put them here when they start.
create table grns.task_types (
    workspace      text collate "C" not null,
    agent_type     text collate "C" not null,
    task_type      text collate "C" not null,
    description    text,
    payload_schema json not null,
    is_published   boolean not null default true,
    secret_paths   text[] not null default '{}',
    follow_ups     jsonb not null default '[]' check (grns.are_follow_ups(follow_ups)),
    published_at   timestamptz not null default now(),
    primary key (workspace, agent_type, task_type)
);
create index task_types_followed on grns.task_types (workspace, task_type) where follow_ups <> '[]';

-- Submits the follow-ups of tasks that have ended, and returns those that it has created. `errors` are those that the events of the ends
-- tell of; `is_bare` leaves out what the tasks had as payload and result. A payload that is deep is left out, too: that of a
-- type that follows its own failures would grow with each of them. What has secrets goes to no other pool, whose workers would get them.
create function grns.submit_follow_ups_of(ended text[], messages uuid[], kinds text[], errors jsonb[], is_bare boolean)
returns table (id text, workspace text, agent_type text) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with due as materialized (
        select row_number() over () as place, grns.new_task_id() as id, t.workspace, f.task_type, f.agent_type, f.priority,
            f.max_attempts, t.trace_id, n.message_id, 'follow-up:' || n.message_id || ':' || f.nth as key,
            f.payload || jsonb_build_object('task_id', t.id, 'task_type', t.task_type, 'status', s.status) || case
                when s.status = 'succeeded' then jsonb_build_object('result', case
                    when is_bare or f.agent_type <> t.agent_type and t.result @? '$.**."$secret"' then null
                    when t.result -> 'is_document' = 'true' then t.result || '{"is_part": true}' else t.result end)
                else jsonb_build_object('error', jsonb_build_object('class', n.error ->> 'class', 'message', n.error ->> 'message'),
                    'payload', case when not (is_bare or f.agent_type <> t.agent_type and t.payload @? '$.**."$secret"'
                        or jsonb_path_exists(t.payload, 'strict $.**{32 to last} ? (@.type() == "object" || @.type() == "array")'))
                        then t.payload end)
            end as payload
        from unnest(ended, messages, kinds, errors) as n (task_id, message_id, kind, error)
        cross join lateral (
            select case n.kind when 'evt.task.completed' then 'succeeded' else substr(n.kind, 10) end as status
        ) as s
        cross join lateral (select t.* from grns.tasks t where t.id = n.task_id offset 0) as t
        cross join lateral (
            select k.follow_ups from grns.task_types k
            where k.workspace = t.workspace and k.agent_type = t.agent_type and k.task_type = t.task_type
            offset 0
        ) as k
        cross join lateral (
            select i.f ->> 'task_type' as task_type, i.f ->> 'agent_type' as agent_type, (i.f ->> 'priority')::smallint as priority,
                (i.f ->> 'max_attempts')::integer as max_attempts, i.f -> 'payload' as payload, i.nth
            from jsonb_array_elements(k.follow_ups) with ordinality as i (f, nth)
            where i.f ->> 'outcome' = case s.status when 'succeeded' then 'success' else 'failure' end
        ) as f
    ),
    there as materialized (
        select a.ordinal
        from (
            select array_agg(d.id order by d.place) as ids, array_agg(d.workspace order by d.place) as workspaces,
                array_agg(d.task_type order by d.place) as task_types, array_agg(d.agent_type order by d.place) as agent_types,
                array_agg(d.priority order by d.place) as priorities, array_agg(d.payload order by d.place) as payloads,
                array_agg(d.max_attempts order by d.place) as attempts, array_agg(d.key order by d.place) as keys,
                array_agg(d.trace_id order by d.place) as traces, array_agg(d.message_id order by d.place) as causes
            from due d
            having count(*) > 0
        ) as n
        cross join lateral grns.submit_tasks(n.ids, n.workspaces, n.task_types, n.agent_types, n.priorities, n.payloads, '{}',
            n.attempts, n.keys, n.traces, n.causes, 'grns') as a
    )
    select d.id, d.workspace, d.agent_type from due d where d.place not in (select e.ordinal from there e);
end
$$;

-- Submits the follow-ups of the tasks that have ended in these rows of the log, and returns those that it has created. A follow-up
-- has its idempotency key from the event of the end, so that of one end there is one, however often its row is read; a
-- task that was redriven and ends again has another. No quota, budget or limit of payloads refuses it: its end has happened.
-- The follower calls it, and must not be held up by one: what Postgres refuses is submitted alone, and then bare.
create function grns.submit_follow_ups(lower_seqs bigint[], upper_seqs bigint[], most_rows bigint)
returns table (id text, workspace text, agent_type text) language plpgsql as $$
#variable_conflict use_column
declare
    ended text[];
    messages uuid[];
    kinds text[];
    errors jsonb[];
    upto integer;
begin
    if not exists (select from grns.task_types k where k.follow_ups <> '[]') then
        return;
    end if;
    select array_agg(n.task_id), array_agg(n.message_id), array_agg(n.kind), array_agg(n.error)
    into ended, messages, kinds, errors
    from unnest(lower_seqs, upper_seqs) as s (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.task_id, e.message_id, e.kind, e.workspace, e.task_type, (e.payload -> 'error')::jsonb as error
        from grns.events e
        where e.seq >= s.lower_seq and e.seq < s.upper_seq
        order by e.seq
        limit most_rows
    ) as n
    where n.kind in ('evt.task.completed', 'evt.task.failed', 'evt.task.dead') and (n.task_type is null or exists (
        select from grns.task_types k
        where k.workspace = n.workspace and k.task_type = n.task_type and k.follow_ups <> '[]'));
    for place in 1 .. coalesce(cardinality(ended), 0) by 20 loop  -- a few at a time: each has the result of its task
        upto := least(place + 19, cardinality(ended));
        begin
            return query select f.* from grns.submit_follow_ups_of(
                ended[place:upto], messages[place:upto], kinds[place:upto], errors[place:upto], false) as f;
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception or insufficient_privilege then
            for one in place .. upto loop
                begin
                    return query select f.* from grns.submit_follow_ups_of(
                        ended[one:one], messages[one:one], kinds[one:one], errors[one:one], false) as f;
                exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception or insufficient_privilege then
                    raise warning 'grns: a follow-up of task % has neither its payload nor its result: %', ended[one], sqlerrm;
                    begin
                        return query select f.* from grns.submit_follow_ups_of(
                            ended[one:one], messages[one:one], kinds[one:one], errors[one:one], true) as f;
                    exception when data_exception or integrity_constraint_violation or program_limit_exceeded or raise_exception
                        or insufficient_privilege  -- such as those of a trigger of yours
                    then
                        raise warning 'grns: task % has no follow-up: %', ended[one], sqlerrm;
                    end;
                end;
            end loop;
        end;
    end loop;
end
$$;
