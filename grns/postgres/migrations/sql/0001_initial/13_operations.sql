-- Operations.
-- Bulk operations: changes to every task that matches a filter. A runner does them batch by batch, and notes how far it
-- is in the statement that moves a batch.
create table grns.operations (
    id              bigint generated always as identity primary key,
    workspace       text collate "C" not null,
    action          text not null,
    filter          text not null,
    canary          boolean not null,                -- one task first; the others, if it succeeds
    rate_per_minute double precision,                -- null: as fast as it goes
    patch           jsonb,                           -- a merge patch of each payload
    agent_type      text collate "C",                -- who is to run them instead
    reason          text,
    created_by      text not null,
    trace_id        text not null default replace(gen_random_uuid()::text, '-', ''),
    matched         bigint not null,                 -- how many there were when it was asked for
    is_exact        boolean not null,                -- whether that was all of them
    created_at      timestamptz not null default now(),  -- what came later is none of its tasks
    state           text not null default 'pending',
    state_reason    text,
    resumes_as      text,                            -- the state that it was paused in
    due_at          timestamptz default now(),       -- set exactly while a runner is to go on with it
    paced_at        timestamptz not null default now(),  -- when the next batch may be moved, by its rate
    epoch           bigint not null default 0,       -- raised whenever a runner takes it
    owner           text,
    lease_until     timestamptz not null default '-infinity',
    page_cursor     text,                            -- behind it the rest begins
    is_exhausted    boolean not null default false,  -- whether nothing is left behind it
    canary_task_id  text collate "C",
    moved           bigint not null default 0,
    skipped         bigint not null default 0,
    skipped_by      jsonb not null default '{}',     -- how many, by the reason
    succeeded       bigint not null default 0,       -- of those that were redriven, as they ended since
    failed_again    bigint not null default 0,
    ended_otherwise bigint not null default 0,
    follow_at       timestamptz,                     -- when to look at them again; null: there are none
    follow_after    text collate "C" not null default '',
    moved_at        timestamptz,                     -- when it moved something last
    ended_at        timestamptz,
    constraint operations_action check (action in ('redrive', 'discard', 'cancel')),
    constraint operations_state check (
        case state
            when 'pending' then due_at is not null and resumes_as is null and ended_at is null
            when 'canary' then due_at is not null and resumes_as is null and ended_at is null
            when 'running' then due_at is not null and resumes_as is null and ended_at is null
            when 'paused' then due_at is null and ended_at is null
                and (resumes_as in ('pending', 'canary', 'running')) is true
            else state in ('done', 'cancelled', 'failed')
                and due_at is null and resumes_as is null and ended_at is not null
        end)
) with (fillfactor = 50);
create index operations_listed on grns.operations (workspace, id);
create index operations_due on grns.operations (due_at) where due_at is not null;
create index operations_followed on grns.operations (follow_at) where follow_at is not null;

-- Redriven tasks that have not ended since, with the version that the operation gave them.
create table grns.operation_tasks (
    operation_id bigint not null,
    task_id      text collate "C" not null,
    version      integer not null,
    primary key (operation_id, task_id)
);

-- Notes what came of one batch, and returns the operation's state after it. Only the statements that move batches
-- call it: they hold the operation's row, and have seen that it is still theirs to move. `chosen` is the canary, where
-- the batch was it.
-- Who is late by up to a second makes up for that; a longer pause permits no burst.
create function grns.note_batch(
    batch_of bigint, new_cursor text, is_end boolean, chosen text, tasks bigint, skips jsonb
) returns text language plpgsql as $$
declare
    o grns.operations;
begin
    select * into strict o from grns.operations s where s.id = batch_of;
    o.state := case
        when chosen is not null then 'canary'
        when is_end then 'done'
        when o.canary and o.canary_task_id is null then 'pending'
        else 'running'
    end;
    o.paced_at := case
        when o.rate_per_minute is null then now()
        else greatest(o.paced_at, now() - interval '1 s') + make_interval(secs => 60 * tasks / o.rate_per_minute)
    end;
    o.skipped_by := (
        select coalesce(jsonb_object_agg(s.reason, s.tasks), '{}')
        from (
            select m.reason, sum(m.tasks::bigint) as tasks
            from (select * from jsonb_each_text(o.skipped_by) union all select * from jsonb_each_text(skips))
                as m (reason, tasks)
            group by m.reason
        ) as s
    );
    update grns.operations s
    set state = o.state, due_at = case when o.state <> 'done' then o.paced_at end, paced_at = o.paced_at,
        ended_at = case when o.state = 'done' then now() end,
        page_cursor = new_cursor, is_exhausted = is_end, canary_task_id = coalesce(chosen, s.canary_task_id),
        moved = s.moved + tasks, skipped_by = o.skipped_by,
        skipped = (select coalesce(sum(k.tasks::bigint), 0) from jsonb_each_text(o.skipped_by) as k (reason, tasks)),
        follow_at = case when tasks > 0 and s.action = 'redrive' then coalesce(s.follow_at, now()) else s.follow_at end,
        moved_at = case when tasks > 0 then now() else s.moved_at end
    where s.id = batch_of
    returning * into o;
    if o.state = 'done' then
        insert into grns.events (version, workspace, kind, trace_id, payload)
        values (0, o.workspace, 'evt.operation.ended', o.trace_id, json_build_object(
            'operation_id', o.id::text, 'action', o.action, 'state', o.state, 'reason', o.reason, 'actor', null,
            'moved', o.moved, 'skipped', o.skipped, 'failed_again', o.failed_again));
    end if;
    return o.state;
end
$$;
