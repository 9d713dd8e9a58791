-- Limits.
-- How many tasks of a key may be queued or running at once, and how many may begin in a time. A task gets its keys when it
-- is submitted; only the admitter (grns/limits/admitter.py) queues a task that has some.
create table grns.limits (
    workspace    text collate "C" not null,
    name         text collate "C" not null,
    max_tasks    integer,                         -- queued or running; null: any number
    rate_count   integer,                         -- so many may begin in so many seconds
    rate_seconds double precision,
    burst        integer,                         -- and so many of them at once
    paused_at    timestamptz,                     -- while it is paused, none is queued
    paused_by    text,
    pause_reason text,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    updated_by   text not null,
    version      integer not null default 1,
    primary key (workspace, name),
    constraint limits_max_tasks check (max_tasks between 1 and 1000000),
    constraint limits_rate check (
        num_nonnulls(rate_count, rate_seconds, burst) in (0, 3) and rate_count > 0
        and rate_seconds between 0.001 and 31622400 and burst between 1 and 10000)
);

-- Which tasks fall under a limit.
create table grns.limited_pools (
    workspace  text collate "C" not null,
    agent_type text collate "C" not null,
    name       text collate "C" not null,
    task_types text[],                            -- null: all of the pool's
    key_path   text[],                            -- where in the payload the key is; null: all have one
    primary key (workspace, agent_type, name),
    constraint limited_pools_limit foreign key (workspace, name) references grns.limits on delete cascade
);
create index limited_pools_limit on grns.limited_pools (workspace, name);

-- Numbers of single keys: how many of its tasks may be queued or running (null: as the limit says), and how many turns it has
-- where another key has one.
create table grns.limit_keys (
    workspace  text collate "C" not null,
    name       text collate "C" not null,         -- of the limit
    key        text collate "C" not null,
    max_tasks  integer,
    weight     double precision not null default 1,
    updated_at timestamptz not null default now(),
    updated_by text not null,
    primary key (workspace, name, key),
    constraint limit_keys_limit foreign key (workspace, name) references grns.limits on delete cascade,
    constraint limit_keys_numbers check (max_tasks between 1 and 1000000 and weight between 0.01 and 100)
);

-- How many tasks of a key may begin. Only the admitter writes it; a key without a row has its whole burst.
create table grns.limit_tokens (
    workspace text collate "C" not null,
    key       text collate "C" not null,
    tokens    double precision not null,
    filled_at timestamptz not null,
    primary key (workspace, key)
) with (fillfactor = 50);
