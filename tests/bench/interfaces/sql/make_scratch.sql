-- What the table is filled from; nothing of it stays.
create schema filling;

create unlogged table filling.failures (
    number      integer primary key,
    error_class text not null,
    message     text not null,             -- `#` stands for the number of the task
    frames      json not null,
    fingerprint text not null
);

-- One slice of time.
create unlogged table filling.lives (
    id         text collate "C" not null,
    workspace  text not null,
    task_type  text not null,
    agent_type text not null,
    priority   smallint not null,
    fate       text not null,              -- the state that it has come to
    created_at timestamptz not null,
    trace_id   text not null,
    attempts   integer not null,
    wait_ms    integer not null,           -- in the queue, before each claim
    run_ms     integer not null,           -- of each attempt
    backoff_ms integer not null,           -- before each attempt but the first
    failure    integer,
    number     integer not null,
    agent_id   text not null,
    until      timestamptz not null,       -- of what waits, when it is due; of what runs, its lease
    key        text
);

-- The id of a message: each transition has its own, and each command.
create function filling.message_id(task_id text, version integer, sort text) returns uuid language sql immutable as $$
    select md5(task_id || version || sort)::uuid
$$;
