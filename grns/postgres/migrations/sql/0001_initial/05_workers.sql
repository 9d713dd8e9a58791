-- Event handlers, workers.
create table grns.processed_messages (
    consumer     text not null,
    message_id   uuid not null,
    processed_at timestamptz not null default statement_timestamp(),  -- the transaction may be a handler's
    primary key (consumer, message_id)
);
create index processed_messages_age on grns.processed_messages (processed_at);

create table grns.workers (
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
    running       integer not null default 0,          -- tasks, as of the last heartbeat
    agent         text collate "C"                     -- name of the agent that it is; null: it has none
) with (fillfactor = 50);
-- A heartbeat changes no column that these indexes hold.
create index workers_alive on grns.workers (workspace, agent_type) where stopped_at is null;
create index workers_agent on grns.workers (workspace, agent) where agent is not null;
create index workers_over_http on grns.workers (workspace) where pid = 0;
create index workers_with_process on grns.workers (agent_id) where pid <> 0 and stopped_at is null;
