-- Pauses.
-- What is paused: no claim takes of it. Each statement that claims looks here, once; there are few rows.
create table grns.pauses (
    workspace  text collate "C" not null,
    agent_type text collate "C" not null,
    task_type  text collate "C" not null default '',  -- '' is all of the pool
    paused_at  timestamptz not null default now(),
    paused_by  text not null,
    reason     text,
    until      timestamptz,                           -- null: until it is resumed
    budget     text collate "C",                      -- the budget that is used up; null: a person has paused it
    primary key (workspace, agent_type, task_type)
);

-- How many tasks of a pool may be queued. The scheduler looks once a second: while as many are, submissions are refused.
create table grns.pool_quotas (
    workspace  text collate "C" not null,
    agent_type text collate "C" not null,
    max_queued integer not null,
    full_since timestamptz,
    updated_at timestamptz not null default now(),
    updated_by text not null,
    primary key (workspace, agent_type),
    constraint pool_quotas_max_queued check (max_queued between 1 and 100000)
);
