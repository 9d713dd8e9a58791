-- Webhooks.
-- Webhooks: who is told of which events, what that is signed with, and what was sent.
create table grns.webhooks (
    id                text collate "C" primary key,       -- sorts by time
    workspace         text collate "C" not null,
    url               text not null,                      -- it may hold a secret
    kinds             text[] not null,                    -- as they were asked for: evt.task.dead, evt.task.*
    pattern           text not null,                      -- the same as one regular expression
    description       text,
    is_enabled        boolean not null default true,
    disabled_reason   text,                               -- why grns itself has disabled it
    since_seq         bigint not null,                    -- the event that it was made or enabled with: it is the first
    failing_since     timestamptz,                        -- null: its latest delivery went well, or there was none
    last_delivered_at timestamptz,                        -- written once a minute at most
    version           integer not null default 1,         -- of what people have said of it
    created_at        timestamptz not null default now(),
    created_by        text not null,
    changed_at        timestamptz not null default now(),
    changed_by        text,                               -- null: grns itself
    deleted_at        timestamptz                         -- the janitor takes away what was sent, and then the row
) with (fillfactor = 50);
create index webhooks_listed on grns.webhooks (workspace, id) where deleted_at is null;
create index webhooks_enabled on grns.webhooks (workspace) where is_enabled;

-- In a table of their own: roles that may read webhooks may not read these.
create table grns.webhook_secrets (
    id         bigint generated always as identity primary key,
    webhook_id text collate "C" not null,
    workspace  text collate "C" not null,
    secret     bytea not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz                                -- null: it is the latest
);
create unique index webhook_secrets_latest on grns.webhook_secrets (webhook_id) where expires_at is null;
create index webhook_secrets_webhook on grns.webhook_secrets (webhook_id);

-- One row for each event that a webhook is told of, however often that is tried.
create table grns.webhook_deliveries (
    webhook_id   text collate "C" not null,
    seq          bigint not null,                         -- of the event in the log
    workspace    text collate "C" not null,
    message_id   uuid not null,
    kind         text not null,
    task_id      text collate "C",
    created_at   timestamptz not null default now(),
    state        text not null default 'pending',
    attempts     integer not null default 0,
    uncounted_attempts integer not null default 0,         -- those before it was sent again
    due_at       timestamptz default now(),               -- set exactly while it is pending
    claim_id     uuid,                                    -- whose attempt is under way, until due_at
    attempted_at timestamptz,
    duration_ms  integer,                                 -- these three: of the latest attempt that has ended
    status_code  integer,
    error        text,
    ended_at     timestamptz,
    primary key (webhook_id, seq),
    constraint webhook_deliveries_state check (
        case state
            when 'pending' then due_at is not null and ended_at is null
            else state in ('delivered', 'failed') and due_at is null and claim_id is null and ended_at is not null
        end)
) with (fillfactor = 70);
create index webhook_deliveries_due on grns.webhook_deliveries (webhook_id, due_at) where due_at is not null;
create index webhook_deliveries_age on grns.webhook_deliveries (created_at);

-- How far the log has been looked through: up to here each event has its deliveries. They and this row move in one
-- statement.
create table grns.webhook_cursor (
    id       integer primary key default 1 check (id = 1),
    low      bigint not null default 0,
    moved_at timestamptz not null default now()
) with (fillfactor = 10);
insert into grns.webhook_cursor default values;
