-- Issues: failures that a person would call the same.
create table grns.issues (
    workspace      text collate "C" not null,
    fingerprint    text collate "C" not null,
    error_class    text not null,                  -- these three: of the latest one
    message        text not null,
    sample_task_id text collate "C" not null,
    first_seen     timestamptz not null,
    last_seen      timestamptz not null,
    total          bigint not null,                -- how often it was seen
    open_count     bigint not null,                -- how many tasks are dead or failed of it now
    state          text collate "C" not null default 'new',
    state_by       text,
    state_at       timestamptz not null default now(),
    note           text,
    owner          text,
    snoozed_until  timestamptz,
    version        integer not null default 1,     -- of what people say of it
    primary key (workspace, fingerprint),
    constraint issues_state check (state in ('new', 'acknowledged', 'ignored', 'resolved', 'regressed'))
) with (fillfactor = 70);
create index issues_seen on grns.issues (workspace, state, last_seen, fingerprint);
create index issues_age on grns.issues (last_seen) where open_count <= 0;

create table grns.issue_hours (
    workspace   text collate "C" not null,
    fingerprint text collate "C" not null,
    hour        timestamptz not null,
    count       bigint not null,
    primary key (workspace, fingerprint, hour),
    foreign key (workspace, fingerprint) references grns.issues on delete cascade
) with (fillfactor = 70);
create index issue_hours_age on grns.issue_hours (hour);

create table grns.issue_facets (
    workspace   text collate "C" not null,
    fingerprint text collate "C" not null,
    facet       text collate "C" not null,
    value       text collate "C" not null,         -- beyond the first 20 of a facet: other
    count       bigint not null,
    primary key (workspace, fingerprint, facet, value),
    foreign key (workspace, fingerprint) references grns.issues on delete cascade,
    constraint issue_facets_facet check (facet in ('task_type', 'worker', 'version', 'error'))
) with (fillfactor = 70);

-- How often an issue was seen in each of the last hours, oldest first; the last one is not over.
create function grns.issue_trend(workspace text, fingerprint text, hours integer) returns bigint[]
language sql stable as $$
    with latest as (
        select date_bin(interval '1 hour', now(), timestamptz 'epoch') as hour
    ),
    seen as materialized (  -- one stretch of the index, and not a look at it for each hour
        select h.hour, h.count
        from grns.issue_hours h
        where h.workspace = $1 and h.fingerprint = $2
            and h.hour > (select l.hour from latest l) - $3 * interval '1 hour'
    )
    select array(
        select coalesce(s.count, 0)
        from latest l
        cross join generate_series(0, $3 - 1) as g (ago)
        left join seen s on s.hour = l.hour - g.ago * interval '1 hour'
        order by g.ago desc
    )
$$;

insert into grns.count_cursor default values;
