-- Relay, reaper, broker.
-- Of some services one process works at a time: the one whose epoch this is. What only it may write is guarded by the
-- epoch in the statement that writes it.
create table grns.leases (
    name  text primary key,
    epoch bigint not null default 0,               -- raised by each new leader
    owner text,
    until timestamptz not null default '-infinity'
) with (fillfactor = 10);
insert into grns.leases (name) values ('relay'), ('stats'), ('follower'), ('admitter');

create table grns.relay_cursor (
    id            integer primary key default 1 check (id = 1),
    low           bigint not null default 0,       -- all numbers up to here are done with
    published     int8multirange not null default '{}',  -- what is done with beyond
    evt_epoch     text,                            -- of GRNS_EVT, as this log was last sent to
    evt_last_seq  bigint not null default 0,       -- highest place in GRNS_EVT that was acknowledged
    evt_mark_seqs bigint[] not null default '{}',  -- places in it that are to have
    evt_mark_rows bigint[] not null default '{}',  -- the messages of these rows of the log
    evt_lost_since   bigint,                       -- what it has lost is sent again: from there on,
    evt_lost_settled bigint,                       -- and up to here it has it again
    dlq_epoch     text,                            -- the same of GRNS_DLQ
    dlq_last_seq  bigint not null default 0,
    dlq_mark_seqs bigint[] not null default '{}',
    dlq_mark_rows bigint[] not null default '{}',
    dlq_lost_since   bigint,
    dlq_lost_settled bigint,
    is_idle       boolean not null default false,  -- it has little to do, and wants to be woken by commits
    updated_at    timestamptz not null default now()
) with (fillfactor = 10);
insert into grns.relay_cursor default values;

-- Wakes the relay when this transaction commits, for whom nothing else does. Commits with a NOTIFY take turns: a relay
-- that is busy is not notified, and reads soon enough anyway. Who prepares transactions for a two-phase commit, which
-- Postgres refuses after a NOTIFY, sets grns.wake to off. The function reads what tenants may not.
create function grns.wake_relay() returns void
language plpgsql security definer set search_path = pg_catalog as $$
begin
    if current_setting('grns.wake', true) is distinct from 'off' and exists (
        select from grns.relay_cursor c
        join grns.leases l on l.name = 'relay' and l.until > clock_timestamp()
        where c.id = 1 and c.is_idle
    ) then
        perform pg_notify('grns_relay', '');
    end if;
end
$$;

-- The timeline that this server writes: another one after a failover. 0 where something like Postgres has none.
create function grns.timeline() returns bigint language plpgsql volatile as $$
begin
    return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
exception when others then
    return 0;
end
$$;

create table grns.reaper_state (
    id                integer primary key default 1 check (id = 1),
    last_tick_at      timestamptz,
    reap_until        timestamptz,  -- later than that, the latest tick says nothing of whether there was an outage
    server_started_at timestamptz,
    hold_until        timestamptz
) with (fillfactor = 10);
insert into grns.reaper_state default values;

-- Requested replays: ranges of the log that the relay publishes again. Ended ones go when the log does.
create table grns.replays (
    id           bigint generated always as identity primary key,
    workspace    text,                             -- null: of all
    patterns     text[] not null,                  -- of kinds, as regular expressions
    since        timestamptz not null,
    until        timestamptz not null,
    requested_at timestamptz not null default now(),
    started_at   timestamptz,
    first_seq    bigint,                           -- known once a relay has begun
    after_seq    bigint,                           -- all up to here is acknowledged
    up_to_seq    bigint,
    stored       bigint not null default 0,
    duplicates   bigint not null default 0,
    ended_at     timestamptz,
    outcome      text,
    constraint replays_end check ((ended_at is null) = (outcome is null) and outcome in ('done', 'withdrawn'))
) with (fillfactor = 50);
create index replays_open on grns.replays (id) where ended_at is null;

-- Which server this is: after a failover it is another one, or goes on under another timeline.
create table grns.server (
    id                integer primary key default 1 check (id = 1),
    system_identifier text,
    timeline          bigint,
    seen_at           timestamptz                  -- goes back with the commits that a failover loses
) with (fillfactor = 10);
insert into grns.server default values;

-- These stay: they are few, and what one has lost may be asked for years later.
create table grns.failovers (
    id                    bigint generated always as identity primary key,
    noticed_at            timestamptz not null default now(),
    last_seen_at          timestamptz not null,    -- of the server that was: all that was lost is younger
    old_system_identifier text not null,
    old_timeline          bigint not null,
    new_system_identifier text not null,
    new_timeline          bigint not null
);
