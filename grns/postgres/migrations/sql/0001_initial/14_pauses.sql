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
    primary key (workspace, agent_type, task_type)
);
