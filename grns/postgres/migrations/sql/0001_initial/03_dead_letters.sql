-- Messages that belong to no task.
create table grns.dead_letters (
    id             uuid primary key default gen_random_uuid(),
    workspace      text not null default 'default',
    reason         text not null,
    detail         text not null,
    subject        text not null,
    stream         text not null,
    stream_seq     bigint not null,
    delivery_count integer not null,
    headers        jsonb not null,
    body           bytea not null,
    body_sha256    text not null,
    state          text not null default 'new',
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    constraint dead_letters_state check (state in ('new', 'redriven', 'discarded')),
    -- the same delivery may be judged twice, where its end did not reach the broker
    constraint dead_letters_once unique (stream, stream_seq, body_sha256)
);
create index dead_letters_recent on grns.dead_letters (workspace, created_at);
create index dead_letters_closed on grns.dead_letters (updated_at) where state <> 'new';
create index dead_letters_new on grns.dead_letters (workspace, created_at, id) where state = 'new';
