-- Agents by name: who they are, whether they live, and what they are told to do. An agent is there while its latest life is: a worker
-- with its name, or whatever sends its heartbeats.
create table grns.agents (
    workspace                  text collate "C" not null,
    name                       text collate "C" not null,
    agent_type                 text collate "C" not null,  -- its pool
    title                      text,
    model                      text,
    capabilities               text[] not null default '{}',
    max_concurrent_tasks       integer not null default 1,
    heartbeat_interval_seconds double precision not null default 10,
    stale_threshold_seconds    double precision not null default 100,
    metadata                   json,
    agent_url                  text,                         -- where it is told that a task waits
    coordinator_enabled        boolean not null default false,  -- a session is begun for it when a task waits and it is away
    created_at                 timestamptz not null default now(),
    updated_at                 timestamptz not null default now(),
    -- Its latest life, and what that has said of itself.
    agent_id                   text,                         -- null: it has never been there
    started_at                 timestamptz,
    last_seen_at               timestamptz,
    stopped_at                 timestamptz,
    is_blocked                 boolean not null default false,
    running                    integer not null default 0,  -- tasks, as of the last heartbeat
    current_task_id            text,
    progress_percent           double precision,
    current_step               text,
    memory_mb                  double precision,
    cpu_percent                double precision,
    -- What its latest life is told: `drain` to end once its tasks have ended, `stop` to end now. Who told it what last stays on view.
    ordered                    text,
    ordered_at                 timestamptz,
    ordered_by                 text,
    order_reason               text,
    -- The latest nudge at its URL or session that was begun for it, and how many have failed in a row.
    nudged_at                  timestamptz,
    nudged_task_id             text,                         -- the task that it was told of
    nudge_failures             integer not null default 0,
    session_key                text,
    -- What the log knows: `note_presence.sql` compares.
    known_health               text not null default 'absent',
    known_agent_id             text,
    primary key (workspace, name),
    constraint agents_order check (ordered in ('drain', 'stop') and ordered_at is not null or ordered is null),
    constraint agents_seconds check (heartbeat_interval_seconds > 0 and stale_threshold_seconds >= 3 * heartbeat_interval_seconds)
) with (fillfactor = 50);
-- A heartbeat changes no column that these indexes hold.
create index agents_of_type on grns.agents (workspace, agent_type, name);
create index agents_stopping on grns.agents (ordered_at) where ordered = 'stop';
create index agents_called on grns.agents (workspace, agent_type, name) where agent_url is not null or coordinator_enabled;

-- The health of an agent, by the age of its last heartbeat. It is stable, as the times that it computes: else it could not be inlined.
create function grns.agent_health(agent grns.agents, clock timestamptz) returns text language sql stable as $$
    select case
        when agent.agent_id is null then 'absent'
        when agent.stopped_at is not null then 'stopped'
        when agent.last_seen_at > clock - 3 * agent.heartbeat_interval_seconds * interval '1 second' then 'healthy'
        when agent.last_seen_at > clock - agent.stale_threshold_seconds * interval '1 second' then 'degraded'
        when agent.last_seen_at > clock - 3 * agent.stale_threshold_seconds * interval '1 second' then 'stale'
        else 'dead'
    end
$$;

-- Lives of agents that had not ended when another one began. They may still have tasks, and are told apart from the latest one.
create table grns.earlier_lives (
    workspace   text collate "C" not null,
    name        text collate "C" not null,
    agent_id    text collate "C" not null,
    replaced_at timestamptz not null default clock_timestamp(),
    ordered     text,
    ordered_at  timestamptz,
    primary key (workspace, name, agent_id)
);
create index earlier_lives_stopping on grns.earlier_lives (ordered_at) where ordered = 'stop';

-- What a life of an agent is told to do; null: to work.
create function grns.life_order(agent grns.agents, life text) returns text language sql stable as $$
    select case
        when agent.agent_id is not distinct from life then agent.ordered
        else (
            select e.ordered from grns.earlier_lives e
            where e.workspace = agent.workspace and e.name = agent.name and e.agent_id = life)
    end
$$;

-- Whether a life is the latest one of an agent, and goes on. One that has said `stopped`, or is dead, begins anew if it speaks again.
create function grns.goes_on(agent grns.agents, life text, clock timestamptz) returns boolean language sql stable as $$
    select agent.agent_id is not distinct from life and agent.stopped_at is null and grns.agent_health(agent, clock) <> 'dead'
$$;

-- Whether a life that speaks becomes the latest one: an earlier one does only where the latest has ended. It is volatile, so that it
-- sees what the transaction did that held the agent's row.
create function grns.begins_life(agent grns.agents, life text, clock timestamptz) returns boolean language sql volatile as $$
    select not grns.goes_on(agent, life, clock) and (
        agent.agent_id is null or agent.agent_id = life
        or agent.stopped_at is not null or grns.agent_health(agent, clock) = 'dead'
        or not exists (
            select from grns.earlier_lives e
            where e.workspace = agent.workspace and e.name = agent.name and e.agent_id = life))
$$;

-- Keeps the latest life of an agent as an earlier one, because `life` takes its place; returns what that is told. The row of the
-- agent is locked. A hundred earlier lives are kept of each.
create function grns.replace_life(agent grns.agents, life text) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    told text;
begin
    if agent.agent_id is null or agent.agent_id = life then
        return null;
    end if;
    if agent.stopped_at is null then
        insert into grns.earlier_lives (workspace, name, agent_id, ordered, ordered_at)
        values (agent.workspace, agent.name, agent.agent_id, agent.ordered, agent.ordered_at)
        on conflict do nothing;
    end if;
    delete from grns.earlier_lives e
    where e.workspace = agent.workspace and e.name = agent.name and e.agent_id = life
    returning e.ordered into told;
    delete from grns.earlier_lives e
    where e.workspace = agent.workspace and e.name = agent.name and e.replaced_at < (
        select o.replaced_at from grns.earlier_lives o
        where o.workspace = agent.workspace and o.name = agent.name
        order by o.replaced_at desc
        offset 99 limit 1);
    return told;
end
$$;

-- How many tasks an agent has: over HTTP exactly, of worker processes as of their last heartbeats. Each worker is one look into an
-- index, which holds only tasks over HTTP.
create function grns.agent_running(agent grns.agents) returns integer language sql stable as $$
    select coalesce(sum(case
        when w.pid = 0 then (
            select count(*) from grns.tasks t
            where t.owner_agent_id = w.agent_id and t.lease_until is not null and t.owner_agent_id like 'http-%')
        when w.stopped_at is null and w.last_seen_at > now() - w.lease_seconds * interval '1 second' then w.running
        else 0
    end), 0)::integer
    from grns.workers w
    where w.workspace = agent.workspace and w.agent = agent.name
$$;

-- How many tasks more a life of an agent may have: none if it is told to end.
create function grns.agent_room(agent grns.agents, life text) returns integer language sql stable as $$
    select case when grns.life_order(agent, life) is null then agent.max_concurrent_tasks - grns.agent_running(agent) else 0 end
$$;

-- Locks an agent, so that its claims follow one another, and returns how many tasks more that life of it may have; null: it is not
-- registered. It is held for a moment only, also if the process that asks dies or is frozen.
create function grns.hold_agent(workspace text, name text, life text) returns integer language plpgsql as $$
#variable_conflict use_variable
declare
    agent grns.agents;
begin
    select g.* into agent from grns.agents g where g.workspace = workspace and g.name = name for no key update;
    if not found then
        return null;
    end if;
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
    return grns.agent_room(agent, life);
end
$$;

-- The most urgent queued task that an agent may run; null: none waits. Routes of others are stepped over, one look for each.
create function grns.work_for(agent grns.agents) returns text language sql stable cost 10000 as $$
    with recursive paused as materialized (
        -- '' is a pause of all of the pool, anything else one of that task type
        select p.task_type from grns.pauses p
        where p.workspace = agent.workspace and p.agent_type = agent.agent_type and (p.until is null or p.until > now())
    ),
    step as (
        (select t.route
        from grns.tasks t
        where t.workspace = agent.workspace and t.agent_type = agent.agent_type and t.queued_at is not null and t.route <> ''
            and t.route >= 'c:'
        order by t.route
        limit 1)
        union all
        select n.route
        from step s
        cross join lateral (
            select t.route
            from grns.tasks t
            where t.workspace = agent.workspace and t.agent_type = agent.agent_type and t.queued_at is not null and t.route <> ''
                and t.route > s.route
            order by t.route
            limit 1
        ) as n
    ),
    found as (
        (select t.id, t.priority, t.queued_at
        from grns.tasks t
        where t.workspace = agent.workspace and t.agent_type = agent.agent_type and t.queued_at is not null and t.route = ''
            and t.task_type <> all (array(select p.task_type from paused p))
        order by t.priority, t.queued_at
        limit 1)
        union all
        select f.*
        from (
            select grns.route_to(agent.name, null) as route
            union all
            select s.route from step s where grns.capabilities_of(s.route) <@ agent.capabilities
        ) as r
        cross join lateral (
            select t.id, t.priority, t.queued_at
            from grns.tasks t
            where t.workspace = agent.workspace and t.agent_type = agent.agent_type and t.queued_at is not null and t.route <> ''
                and t.route = r.route and t.task_type <> all (array(select p.task_type from paused p))
            order by t.priority, t.queued_at
            limit 1
        ) as f
    )
    select f.id
    from found f
    where not exists (select from paused p where p.task_type = '')
    order by f.priority, f.queued_at
    limit 1
$$;

-- Mail between agents: a row for each agent that a message is for. It is delivered again until it is acknowledged. An answer to
-- what a task has asked is for that task, which gets it as a signal.
create table grns.mail (
    seq            bigint generated always as identity primary key,
    id             uuid not null,                            -- of the message: sent twice is sent once
    workspace      text collate "C" not null,
    to_agent       text collate "C",
    to_task        text collate "C",
    from_agent     text,                                     -- as the sender says
    from_task      text collate "C",                         -- the attempt that sent it
    from_attempt   integer,
    type           text not null,
    correlation_id text collate "C",
    in_reply_to    uuid,
    payload        json not null,
    created_at     timestamptz not null default clock_timestamp(),
    expires_at     timestamptz not null,
    delivered_at   timestamptz,
    deliveries     integer not null default 0,
    acked_at       timestamptz,
    unique nulls not distinct (workspace, id, to_agent),
    constraint mail_to check (num_nonnulls(to_agent, to_task) = 1)
);
create index mail_open on grns.mail (workspace, to_agent, seq) where acked_at is null;
create index mail_of on grns.mail (workspace, to_agent, seq) where acked_at is not null;
create index mail_conversation on grns.mail (workspace, correlation_id, seq) where correlation_id is not null;
create index mail_age on grns.mail (created_at);

-- Sends a message to one agent, or to all of a pool, or of the workspace, but the sender; returns to how many it is sent now. If it
-- names the attempt that sends it, that must own its task. One that answers another goes to the agent that sent that, unless it says
-- to whom; a task that sent it gets the answer as the signal `reply.<id>`, too.
create function grns.send_mail(
    type text, payload jsonb default '{}', to_agent text default null, to_pool text default null, workspace text default 'default',
    from_agent text default null, correlation_id text default null, in_reply_to uuid default null, message_id uuid default null,
    expires_seconds double precision default 604800, actor text default null,
    task_id text default null, attempt integer default null, lease_id uuid default null, wakes boolean default true
) returns integer language plpgsql as $$
#variable_conflict use_variable
declare
    token constant text := '^[A-Za-z0-9_-]{1,64}$';
    most constant integer := 10000;  -- unacknowledged messages of an agent
    new_id constant uuid := coalesce(message_id, gen_random_uuid());
    trace text := nullif(current_setting('grns.trace_id', true), '');
    asked grns.mail;
    answers boolean := false;  -- whether it goes to who asked
    is_asked boolean := false;  -- whether the sender may answer the task that asked
    task_version bigint := 0;
    asking_task text;
    sent integer;
    wrong text;
begin
    wrong := case
        when (type ~ '^[A-Za-z0-9_.-]{1,64}$') is not true then 'type is 1 to 64 of A-Z a-z 0-9 _ . -'
        when (workspace ~ token) is not true or to_agent !~ token or to_pool !~ token or from_agent !~ token
            then 'workspace, to_agent, to_pool and from_agent are 1 to 64 of A-Z a-z 0-9 _ -'
        when to_agent is not null and to_pool is not null then 'to_pool: pass an agent or a pool'
        when correlation_id !~ '^[!-~]{1,128}$' then 'correlation_id is 1 to 128 printable ASCII characters'
        when (expires_seconds > 0 and expires_seconds <= 2678400) is not true then 'expires_seconds is more than 0 and at most 31 days'
        when (jsonb_typeof(payload) = 'object') is not true then 'payload is a JSON object'
        -- the reference to a long one lists the blobs that it refers to
        when octet_length(payload::text) > case when payload @> '{"is_document": true}' then 262144 else 4096 end then 'payload has at most 4,096 bytes: keep more in a place of your own, and send where'
    end;
    if wrong is not null then
        raise exception 'grns: %', wrong using errcode = 'invalid_parameter_value', detail = 'bad_message';
    end if;
    if task_id is not null then
        -- Two tasks that answer each other lock both rows in the same order.
        select m.from_task into asking_task from grns.mail m
        where in_reply_to is not null and m.workspace = workspace and m.id = in_reply_to
        limit 1;
        if asking_task < task_id then
            perform from grns.tasks t where t.id = asking_task and t.workspace = workspace for no key update;
        end if;
        select t.trace_id, t.version into trace, task_version
        from grns.tasks t
        where t.id = task_id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace and t.status = 'running'
        for share;
        if not found then
            raise exception 'grns: attempt % of task % does not own it any more', attempt, task_id
                using errcode = 'object_not_in_prerequisite_state', detail = 'lease_lost';
        end if;
    end if;
    if in_reply_to is not null then
        select m.* into asked from grns.mail m where m.workspace = workspace and m.id = in_reply_to limit 1;
        answers := to_agent is null and to_pool is null;
        if answers and asked.from_agent is null and asked.from_task is null then
            raise exception 'grns: there is no message % of an agent or a task to answer in workspace %', in_reply_to, workspace
                using errcode = 'no_data_found', detail = 'not_found';
        end if;
        -- Anyone may write to who asked; the answer that a task waits for comes from who was asked, or from no agent.
        is_asked := answers and (from_agent is null or exists (
            select from grns.mail m where m.workspace = workspace and m.id = in_reply_to and m.to_agent = from_agent));
        if answers and asked.from_agent is null and not is_asked then
            raise exception 'grns: message % is not to agent %', in_reply_to, from_agent
                using errcode = 'no_data_found', detail = 'not_found';
        end if;
        -- A task may have asked in the name of an agent that is not registered, or not any more.
        to_agent := case
            when not answers then to_agent
            when asked.from_task is null or exists (
                select from grns.agents g where g.workspace = workspace and g.name = asked.from_agent) then asked.from_agent
        end;
        correlation_id := coalesce(correlation_id, asked.correlation_id);
    end if;
    if to_agent is not null and not exists (select from grns.agents g where g.workspace = workspace and g.name = to_agent) then
        raise exception 'grns: there is no agent % in workspace %', to_agent, workspace using errcode = 'no_data_found', detail = 'not_found';
    end if;
    with mailboxes as (
        select g.name from grns.agents g
        where g.workspace = workspace and (to_agent is not null or not answers) and (to_agent is null or g.name = to_agent) and (to_pool is null or g.agent_type = to_pool)
            and (to_agent is not null or g.name is distinct from from_agent)
    ),
    kept as (
        insert into grns.mail (id, workspace, to_agent, from_agent, from_task, from_attempt, type, correlation_id, in_reply_to,
            payload, expires_at)
        select new_id, workspace, b.name, from_agent, task_id, attempt, type, correlation_id, in_reply_to, payload::json,
            clock_timestamp() + expires_seconds * interval '1 second'
        from mailboxes b
        where (
            select count(*) from (
                select from grns.mail m where m.workspace = workspace and m.to_agent = b.name and m.acked_at is null and m.expires_at > now()
                limit most
            ) as f
        ) < most
        order by b.name
        on conflict do nothing
        returning 1
    ),
    to_task as (
        insert into grns.mail (id, workspace, to_task, from_agent, from_task, from_attempt, type, correlation_id, in_reply_to,
            payload, expires_at, delivered_at, deliveries, acked_at)
        select new_id, workspace, asked.from_task, from_agent, task_id, attempt, type, correlation_id, in_reply_to, payload::json,
            clock_timestamp() + expires_seconds * interval '1 second', clock_timestamp(), 1, clock_timestamp()
        where asked.from_task is not null and is_asked
        on conflict do nothing
        returning 1
    )
    select (select count(*) from kept) + (select count(*) from to_task), (select count(*) from to_task) > 0 into sent, answers;
    if answers and exists (select from grns.tasks t where t.id = asked.from_task and t.workspace = workspace) then
        perform grns.send_signal(asked.from_task, 'reply.' || in_reply_to, jsonb_build_object('message_id', new_id, 'type', type,
            'from_agent', from_agent, 'payload', payload), new_id, workspace, actor, wakes);
    end if;
    if sent = 0 and to_agent is not null and not exists (
        select from grns.mail m where m.workspace = workspace and m.id = new_id and m.to_agent = to_agent)
    then
        raise exception 'grns: % has % unacknowledged messages', to_agent, most
            using errcode = 'configuration_limit_exceeded', detail = 'mailbox_full';
    end if;
    if sent > 0 then
        insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, actor, payload)
        values (task_version, workspace, task_id, 'evt.message.sent', attempt, coalesce(trace, replace(gen_random_uuid()::text, '-', '')), actor,
            json_build_object('message_id', new_id, 'type', type, 'from_agent', from_agent, 'task_id', task_id, 'to_agent', to_agent,
                'to_task', case when is_asked then asked.from_task end, 'to_pool', to_pool, 'agents', sent, 'correlation_id', correlation_id, 'in_reply_to', in_reply_to, 'payload', payload,
                'actor', actor));
        if wakes then
            perform grns.wake_relay();
        end if;
    end if;
    return sent;
end
$$;
