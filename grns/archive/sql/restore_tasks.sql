-- Restores tasks that are not there; returns the ids of those that it has restored. They are kept for a while, counted again, and
-- the log says so.
-- $1 lines of an archive, as a JSON array, $2 how long they are kept, in seconds, $3 the archive, $4 who did, $5 why
with restored as (
    insert into grns.tasks as t
    select r.*
    from json_array_elements($1::json) as l (line)
    cross join lateral json_array_elements(l.line -> 'tasks') as e (row)
    cross join lateral json_populate_record(null::grns.tasks, e.row) as r
    on conflict do nothing
    returning t.id, t.workspace, t.task_type, t.status, t.version, t.attempt, t.trace_id, t.last_message_id, t.fingerprint,
        t.discarded_at, now() + $2::double precision * interval '1 second' as until
),
kept as (
    insert into grns.kept_tasks (task_id, workspace, until)
    select r.id, r.workspace, r.until from restored r
    on conflict (task_id) do update set until = excluded.until
),
counted as (
    insert into grns.deleted_tasks (workspace, task_type, status, fingerprint, count)
    select r.workspace, r.task_type, r.status,
        case when r.status in ('dead', 'failed') and r.discarded_at is null then r.fingerprint end, -count(*)
    from restored r
    group by 1, 2, 3, 4
),
logged as (
    insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, causation_id, task_type, actor, payload)
    select r.version, r.workspace, r.id, 'evt.task.restored', r.attempt, r.trace_id, r.last_message_id, r.task_type, $4::text,
        json_build_object('task_id', r.id, 'status', r.status, 'archive', $3::text, 'kept_until', r.until,
            'actor', $4, 'reason', $5::text)
    from restored r
)
select r.id from restored r
