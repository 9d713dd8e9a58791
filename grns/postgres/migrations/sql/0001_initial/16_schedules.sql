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
    version        integer not null default 1,
    primary key (workspace, name),
    constraint schedules_rhythm check (num_nonnulls(cron, every_seconds) = 1 and every_seconds between 1 and 31622400),
    constraint schedules_window check (window_seconds between 0 and 604800),
    constraint schedules_overlap check (overlap in ('skip', 'queue_one', 'allow')),
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
    primary key (workspace, name, due_at),
    constraint schedule_runs_outcome check (outcome in ('submitted', 'skipped', 'missed'))
);
create index schedule_runs_decided on grns.schedule_runs (decided_at);
