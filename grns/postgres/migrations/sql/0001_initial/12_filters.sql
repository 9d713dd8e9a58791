-- Lists, saved filters.
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
-- They read all rows for every caller: `isolate_workspaces` grants them to tenants alone.
revoke execute on function grns.edge_of_latest(text, integer), grns.edge_of_due(timestamptz, integer) from public;

-- Saved filters. What is read back is parsed again: the text is as the parser writes it.
create table grns.saved_filters (
    workspace text collate "C" not null,
    name      text collate "C" not null,
    text      text not null,
    saved_by  text,
    saved_at  timestamptz not null default now(),
    primary key (workspace, name)
);
