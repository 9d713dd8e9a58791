-- Progress.
-- What the attempt that owns a task has last reported, and the checkpoint of any attempt. Most tasks have no row.
create table grns.progress (
    task_id         text collate "C" primary key,
    workspace       text collate "C" not null,
    minutes         double precision,             -- how long an attempt is expected to take, as its submission says
    attempt         integer not null default 0,   -- of which attempt all is that stands below; 0: none has reported
    percent         double precision,
    step            text,
    completes_at    timestamptz,                  -- when it expects to be done
    reported_at     timestamptz,
    logged          integer,                      -- the tens of percent in its latest event
    logged_step     text,
    stall_seconds   double precision,             -- how long it may report nothing; null: as long as it takes
    overdue_seconds double precision,             -- the same once it has taken longer than expected; null: it has not
    stalls_at       timestamptz,                  -- when to look whether it has; a report does not move it
    has_stalled     boolean not null default false,
    -- Of any attempt.
    checkpoint      jsonb,
    logged_at       timestamptz                   -- when the latest event was written
) with (fillfactor = 50);
create index progress_stalls on grns.progress (stalls_at) where stalls_at is not null;
