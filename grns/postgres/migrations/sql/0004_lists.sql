-- What somebody has set aside: no state, but a mark on a task that has ended, which a redrive takes off again.
alter table grns.tasks
    add column discarded_at timestamptz,
    add column discarded_by text;

-- What lists of tasks are read from. Whoever writes tasks waits while the indexes are made; where they are many, make
-- them beforehand, as they stand here, with `create index concurrently`.
-- It has one entry for each task that has ended and nobody has set aside, and a predicate that no hot statement
-- implies: however many were discarded, lists step over none of them.
create index if not exists tasks_ended on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is null;
create index if not exists tasks_discarded on grns.tasks (workspace, status, finished_at, id)
    where finished_at is not null and discarded_at is not null;
-- Of one issue among all that is dead. Tasks that never failed are not in it.
create index if not exists tasks_issue on grns.tasks (workspace, fingerprint, status, finished_at, id)
    where finished_at is not null and discarded_at is null and fingerprint is not null;
drop index grns.tasks_dead;
-- Those that somebody has to deal with.
create index dead_letters_new on grns.dead_letters (workspace, created_at, id)
    where state = 'new';

-- Lists of tasks in any state, and of those that are due, look at so many rows, whosesoever they are: no index has the
-- workspace in front of their order. To a tenant the others' rows do not count, and it would look at all there are.
-- So it is told where so many end: by a time, and by nothing else that is another's. The time of a task that is due is
-- rounded up to the second: no tenant learns when exactly another's task is due.
create function grns.edge_of_latest(behind text, most integer) returns text
language sql stable security definer set search_path = pg_catalog as $$
    select left(t.id, 13) from grns.tasks t where t.id < behind order by t.id desc offset most - 1 limit 1
$$;
create function grns.edge_of_due(behind timestamptz, most integer) returns timestamptz
language sql stable security definer set search_path = pg_catalog as $$
    select date_trunc('second', t.next_attempt_at) + interval '1 second' from grns.tasks t
    where t.next_attempt_at is not null and t.next_attempt_at >= behind
    order by t.next_attempt_at offset most - 1 limit 1
$$;
-- They read all rows, whoever calls them: `isolate_workspaces` grants them to tenants alone.
revoke execute on function grns.edge_of_latest(text, integer), grns.edge_of_due(timestamptz, integer) from public;

-- Filters that somebody has saved. What is read back is parsed again: the text is as the parser writes it.
create table grns.saved_filters (
    workspace text collate "C" not null,
    name      text collate "C" not null,
    text      text not null,
    saved_by  text,
    saved_at  timestamptz not null default now(),
    primary key (workspace, name)
);
insert into grns.tenant_rights (relation, rights) values ('saved_filters', 'select, insert, update, delete');
select grns.isolate_workspaces();
