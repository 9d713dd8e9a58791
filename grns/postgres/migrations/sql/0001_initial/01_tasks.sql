-- The schema of grns, in your own database.
create schema if not exists grns;

-- Tasks.
-- What indexes hold has collation "C": another one costs a call of its library with each comparison.
create table grns.tasks (
    id                  text collate "C" primary key,
    workspace           text collate "C" not null,
    task_type           text not null,
    agent_type          text collate "C" not null,
    priority            smallint not null,
    max_attempts        integer,              -- what the submission said; null: the handler's
    idempotency_key     text collate "C",
    route               text collate "C" not null default '',  -- who may run it: '' any worker of its pool, or grns.route_to
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
    operation_id        bigint,               -- the bulk operation that moved it last: neither that nor an earlier one moves it again
    waits_for           text,                 -- set exactly while waiting: time, tasks (see grns.waits), signal (see grns.signal_waits), limit, or pause
    limits              text[] collate "C",   -- the limits that it falls under, each with its key; null: none
    -- One constraint: each is read anew by every statement that writes, and there are many small ones.
    constraint tasks_shape check (
        case status
            when 'running' then lease_id is not null and lease_until is not null and owner_agent_id is not null
                and queued_at is null and next_attempt_at is null and finished_at is null
            when 'queued' then queued_at is not null and next_attempt_at is null and finished_at is null
            when 'waiting' then (waits_for = 'time' and next_attempt_at is not null
                    or waits_for in ('tasks', 'signal')
                    or waits_for in ('limit', 'pause') and next_attempt_at is null) is true
                and queued_at is null and finished_at is null
            when 'retry_wait' then next_attempt_at is not null and queued_at is null and finished_at is null
            else status in ('succeeded', 'failed', 'dead', 'cancelled')
                and finished_at is not null and queued_at is null and next_attempt_at is null
        end
        and (status = 'running' or (lease_id is null and lease_until is null and owner_agent_id is null))
        and (status = 'waiting' or waits_for is null))
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
-- Type and route are last: a poll passes over what it may not take without a look at its row.
create index tasks_ready on grns.tasks (workspace, agent_type, priority, queued_at, task_type, route)
    where queued_at is not null;
create index tasks_routed on grns.tasks (workspace, agent_type, route, priority, queued_at)
    where queued_at is not null and route <> '';
create index tasks_due on grns.tasks (next_attempt_at)
    where next_attempt_at is not null;
create index tasks_lease on grns.tasks (lease_until)
    where lease_until is not null;
-- What agents over HTTP run: each claim of theirs counts it. Tasks of worker processes are not in it.
create index tasks_over_http on grns.tasks (owner_agent_id)
    where lease_until is not null and owner_agent_id like 'http-%';
-- Lists of ended tasks: one entry per ended task that is not discarded.
create index tasks_ended on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is null;
create index tasks_discarded on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is not null;
-- The tasks of one issue. Tasks that never failed are not in it.
create index tasks_issue on grns.tasks (workspace, fingerprint, status, finished_at, id)
    where finished_at is not null and discarded_at is null and fingerprint is not null;

-- Tasks that are paused, each with who did it. It goes with its task: a row says nothing once the task waits no more.
create table grns.task_pauses (
    task_id   text collate "C" primary key,
    workspace text collate "C" not null,
    paused_at timestamptz not null default statement_timestamp(),
    paused_by text,
    reason    text,
    due_at    timestamptz                         -- the time that it waited for
);

-- Tasks that wait for others.
create index tasks_needy on grns.tasks (id)
    where waits_for = 'tasks';

-- Tasks that wait for room in their limits, in the order in which they get it; and those that take room.
create index tasks_limited on grns.tasks (workspace, limits, priority, id)
    where waits_for = 'limit';
create index tasks_admitted on grns.tasks (id)
    where limits is not null and (queued_at is not null or lease_until is not null);

-- The route of a task: to one agent, or to those that have all of some capabilities. '' is to any worker of the pool.
create function grns.route_to(agent text, capabilities text[]) returns text language sql immutable as $$
    select case
        when agent is not null then 'a:' || agent
        when cardinality(capabilities) > 0 then 'c:' || (
            select string_agg(distinct c.name collate "C", ',' order by c.name collate "C") from unnest(capabilities) as c (name))
        else ''
    end
$$;

-- The two parts of a route, for people.
create function grns.agent_of(route text) returns text language sql immutable as $$
    select case when route like 'a:%' then substr(route, 3) end
$$;
create function grns.capabilities_of(route text) returns text[] language sql immutable as $$
    select case when route like 'c:%' then string_to_array(substr(route, 3), ',') end
$$;

-- What the log says of a task that is queued: on which priority subject its command goes, or, of one that only some agents may
-- run, its pool and route. That one has no command, for that would go to any worker; the relay hints at it instead.
create function grns.command_route(agent_type text, priority smallint, route text) returns text language sql immutable as $$
    select case route when '' then agent_type || '.p' || priority else '@' || agent_type || '@' || route end
$$;

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
        'cancelled>queued', 'cancelled>waiting', 'dead>waiting', 'failed>waiting', 'queued>waiting',
        'retry_wait>waiting', 'running>waiting'))
    execute function grns.refuse_transition();
