-- Stats and issues.
-- The fingerprint of a failure that has no message: as grns/model/failure.py makes it.
create function grns.fingerprint(task_type text, error_class text) returns text language sql stable as $$
    select left(encode(sha256(convert_to(task_type || chr(31) || error_class || chr(31), 'UTF8')), 'hex'), 16)
$$;

-- How far the log is counted. The counts and this row move in one statement.
create table grns.count_cursor (
    id          integer primary key default 1 check (id = 1),
    moves       bigint not null default 0,         -- raised by each statement that counts
    low         bigint not null default 0,         -- all numbers up to here are counted
    counted     int8multirange not null default '{}',  -- what is counted beyond
    updated_at  timestamptz not null default now()
) with (fillfactor = 10);

create table grns.task_counts (
    workspace text collate "C" not null,
    task_type text collate "C" not null,
    status    text collate "C" not null,
    count     bigint not null,
    primary key (workspace, task_type, status)
) with (fillfactor = 50);

-- What retention has deleted, which no event tells: it waits here to be counted.
create table grns.deleted_tasks (
    id          bigint generated always as identity primary key,
    workspace   text not null,
    task_type   text not null,
    status      text not null,
    fingerprint text,                              -- of the issue that it belonged to as long as it was there
    count       bigint not null
);

create table grns.task_minutes (
    workspace    text collate "C" not null,
    minute       timestamptz not null,
    task_type    text collate "C" not null,
    submitted    bigint not null,
    claimed      bigint not null,
    succeeded    bigint not null,
    failed       bigint not null,
    dead         bigint not null,
    cancelled    bigint not null,
    retried      bigint not null,
    expired      bigint not null,                  -- leases that were reaped, attempts left
    released     bigint not null,
    redriven     bigint not null,
    queue_count  bigint not null,                  -- claims of what had been queued, and how long that was
    queue_ms_sum bigint not null,
    run_count    bigint not null,                  -- attempts that came to their own end, and how long they ran
    run_ms_sum   bigint not null,
    primary key (workspace, minute, task_type)
) with (fillfactor = 70);
create index task_minutes_age on grns.task_minutes (minute);
