-- Schedules.
-- When tasks are submitted, again and again. `next_at` is the next time that is due; the statement that decides about it
-- sets the one after it, so each is decided once.
create table grns.schedules (
    workspace      text collate "C" not null,
    name           text collate "C" not null,
    cron           text,                          -- one of both: five fields, by the clocks of the time zone,
    every_seconds  double precision,              -- or so many seconds, counted from `anchor_at`
    time_zone      text not null,
    task_type      text not null,
    agent_type     text not null,
    payload        jsonb not null,
    priority       smallint not null,
    max_attempts   integer,
    overlap        text not null,                 -- while the task before has not ended
    catch_up       text not null,                 -- of times that were missed
    window_seconds double precision not null,     -- and how long ago they may be
    jitter_seconds double precision not null,     -- a task starts up to so much later than it is due
    pause_after_failures integer,                 -- it is paused after so many tasks in a row that failed
    failures       integer not null default 0,    -- so many were the last in a row ...
    is_counted     boolean not null default false, -- ... with the last task, once that has ended
    anchor_at      timestamptz not null,
    next_at        timestamptz not null,
    last_due_at    timestamptz,                   -- of the last task that was submitted
    last_task_id   text,
    paused_at      timestamptz,
    paused_by      text,
    pause_reason   text,
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    updated_by     text not null,
    declared_at    timestamptz,                   -- a worker that declares it in code started; null: changed since
    version        integer not null default 1,
    primary key (workspace, name),
    constraint schedules_rhythm check (num_nonnulls(cron, every_seconds) = 1 and every_seconds between 1 and 31622400),
    constraint schedules_window check (window_seconds between 0 and 604800),
    constraint schedules_jitter check (jitter_seconds >= 0 and jitter_seconds < least(3600, every_seconds)),
    constraint schedules_pause_after_failures check (pause_after_failures between 1 and 1000),
    constraint schedules_overlap check (overlap in ('skip', 'queue_one', 'queue', 'cancel_previous', 'allow')),
    constraint schedules_catch_up check (catch_up in ('latest', 'all', 'none'))
) with (fillfactor = 70);
create index schedules_due on grns.schedules (next_at) where paused_at is null;

-- What was decided about each time that was due. One row tells of all that were missed together.
create table grns.schedule_runs (
    workspace  text collate "C" not null,
    name       text collate "C" not null,
    due_at     timestamptz not null,
    outcome    text not null,
    reason     text,                              -- why none was submitted
    task_id    text,                              -- the task that was submitted, or that still ran
    missed     integer,                           -- how many were missed: this one and those before it
    decided_at timestamptz not null default now(),
    source     text not null,                     -- who decided: the scheduler, or a user who asked for a run or a backfill
    primary key (workspace, name, due_at, source),
    constraint schedule_runs_source check (source in ('tick', 'run', 'backfill')),
    constraint schedule_runs_outcome check (outcome in ('submitted', 'skipped', 'missed'))
);
create index schedule_runs_decided on grns.schedule_runs (decided_at);

-- Creates a schedule, or replaces the one of its name, in the caller's transaction; without a row nothing is different. Its
-- phase and next time stay while its rhythm does. `cron`, five fields by the clocks of `time_zone`, or `every_seconds`.
-- Without a `next_at`, the scheduler finds the first time of a cron expression, and pauses a schedule that has none.
create function grns.put_schedule(
    name text, task_type text, payload jsonb default '{}', agent_type text default 'worker', cron text default null,
    every_seconds double precision default null, time_zone text default 'UTC', priority smallint default 2,
    max_attempts integer default null, overlap text default 'skip', catch_up text default 'latest',
    window_seconds double precision default 86400, workspace text default 'default', actor text default 'sql',
    anchor_at timestamptz default clock_timestamp(), next_at timestamptz default null,
    jitter_seconds double precision default 0, pause_after_failures integer default null, is_sealed boolean default false
) returns setof grns.schedules language plpgsql as $$
#variable_conflict use_column
declare
    made grns.schedules;
begin
    if not (name ~ '^[A-Za-z0-9_-]{1,64}$' and task_type ~ '^[A-Za-z0-9_-]{1,64}$'
            and agent_type ~ '^[A-Za-z0-9_-]{1,64}$' and priority between 0 and 3
            and (cron is null) <> (every_seconds is null)) is true then
        raise exception 'grns: a schedule has a name, a task_type, an agent_type, a priority of 0 to 3, and cron or every_seconds'
            using errcode = 'invalid_parameter_value', detail = 'bad_schedule';
    end if;
    perform grns.check_payload(payload);
    if not is_sealed then
        perform grns.check_sealed($13, array[$2], array[$3]);
    end if;
    insert into grns.schedules as s (workspace, name, cron, every_seconds, time_zone, task_type, agent_type, payload,
        priority, max_attempts, overlap, catch_up, window_seconds, jitter_seconds,
        pause_after_failures, anchor_at, next_at, updated_by)
    values ($13, $1, $5, $6, $7, $2, $4, $3, $8, $9, $10, $11, $12, $17, $18, $15,
        coalesce($16, $15 + coalesce($6, 0) * interval '1 second'), $14)
    on conflict (workspace, name) do update
    set cron = excluded.cron, every_seconds = excluded.every_seconds, time_zone = excluded.time_zone,
        task_type = excluded.task_type, agent_type = excluded.agent_type, payload = excluded.payload,
        priority = excluded.priority, max_attempts = excluded.max_attempts, overlap = excluded.overlap,
        catch_up = excluded.catch_up, window_seconds = excluded.window_seconds, jitter_seconds = excluded.jitter_seconds,
        pause_after_failures = excluded.pause_after_failures,
        anchor_at = case when (s.cron, s.every_seconds, s.time_zone)
                is not distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone)
            then s.anchor_at else excluded.anchor_at end,
        next_at = case when (s.cron, s.every_seconds, s.time_zone)
                is not distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone)
            then s.next_at else excluded.next_at end,
        updated_at = now(), updated_by = excluded.updated_by, declared_at = null, version = s.version + 1
    where (s.cron, s.every_seconds, s.time_zone, s.task_type, s.agent_type, s.payload, s.priority, s.max_attempts,
            s.overlap, s.catch_up, s.window_seconds, s.jitter_seconds, s.pause_after_failures)
        is distinct from (excluded.cron, excluded.every_seconds, excluded.time_zone, excluded.task_type,
            excluded.agent_type, excluded.payload, excluded.priority, excluded.max_attempts, excluded.overlap,
            excluded.catch_up, excluded.window_seconds, excluded.jitter_seconds, excluded.pause_after_failures)
    returning s.* into made;
    if not found then
        return;
    end if;
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    values (0, made.workspace, case made.version when 1 then 'evt.schedule.created' else 'evt.schedule.changed' end,
        replace(gen_random_uuid()::text, '-', ''), $14,
        json_build_object('schedule', made.name, 'when', case when made.cron is null
                then 'every ' || trim_scale(made.every_seconds::numeric) || ' s'
                else made.cron || case made.time_zone when 'UTC' then '' else ' ' || made.time_zone end end,
            'task_type', made.task_type, 'agent_type', made.agent_type, 'reason', null, 'actor', $14));
    return next made;
end
$$;
