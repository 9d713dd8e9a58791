-- Ends the restoration of tasks whose rows this transaction has inserted; returns their ids. They are kept for a while, counted again,
-- and the log says so. An issue that they belong to, and that is forgotten, is known again.
-- $1 ids, $2 how long they are kept, in seconds, $3 the archive, $4 who did, $5 why
with restored as (
    select t.id, t.workspace, t.task_type, t.status, t.version, t.attempt, t.trace_id, t.last_message_id, t.finished_at, t.last_error,
        case when t.status in ('dead', 'failed') and t.discarded_at is null then t.fingerprint end as fingerprint,
        now() + $2::double precision * interval '1 second' as until
    from grns.tasks t
    where t.id = any($1::text[]) and t.xmin = pg_current_xact_id()::xid
),
kept as (
    insert into grns.kept_tasks (task_id, workspace, until)
    select r.id, r.workspace, r.until from restored r
    on conflict (task_id) do update set until = excluded.until
),
issues as (
    insert into grns.issues (workspace, fingerprint, error_class, message, sample_task_id, first_seen, last_seen, total, open_count)
    select r.workspace, r.fingerprint, coalesce(min(r.last_error ->> 'class'), ''), coalesce(left(min(r.last_error ->> 'message'), 1000), ''),
        min(r.id), min(r.finished_at), max(r.finished_at), count(*), 0
    from restored r
    where r.fingerprint is not null
    group by 1, 2
    order by 1, 2
    on conflict (workspace, fingerprint) do nothing
),
counted as (
    insert into grns.deleted_tasks (workspace, task_type, status, fingerprint, count)
    select r.workspace, r.task_type, r.status, r.fingerprint, -count(*)
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
