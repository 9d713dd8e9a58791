-- Event handlers, agents.
create table grns.processed_messages (
    consumer     text not null,
    message_id   uuid not null,
    processed_at timestamptz not null default statement_timestamp(),  -- the transaction may be a handler's
    primary key (consumer, message_id)
);
create index processed_messages_age on grns.processed_messages (processed_at);

create table grns.agents (
    agent_id      text primary key,
    workspace     text collate "C" not null,
    agent_type    text collate "C" not null,
    host          text not null,
    pid           integer not null,
    version       text not null,
    concurrency   integer not null,
    task_types    text[] not null,
    lease_seconds double precision not null,
    started_at    timestamptz not null default now(),
    last_seen_at  timestamptz not null default now(),
    worked_at     timestamptz not null default now(),  -- until then it was full, or began and ended tasks
    stopped_at    timestamptz,
    running       integer not null default 0           -- tasks, as of the last heartbeat
) with (fillfactor = 50);
-- A heartbeat changes no column that these indexes hold.
create index agents_alive on grns.agents (workspace, agent_type) where stopped_at is null;
create index agents_over_http on grns.agents (workspace) where pid = 0;
create index agents_with_process on grns.agents (agent_id) where pid <> 0 and stopped_at is null;
