-- Deletes the oldest open messages of workspaces that keep too many, and logs each. Workspaces that were not created
-- share one bound: otherwise a publisher could invent a workspace for each message.
-- $1 messages and $2 bytes that a workspace may keep, $3 rows at most
with kept as (
    select d.id, d.created_at, count(*) over newest as messages,
        -- neither function reads what is stored out of line
        sum(octet_length(d.body) + pg_column_size(d.headers)) over newest as bytes
    from grns.dead_letters d
    left join grns.workspaces w on w.workspace = d.workspace
    where d.state = 'new'
    window newest as (partition by w.workspace order by d.created_at desc, d.id desc)
),
excess as (
    select k.id from kept k where k.messages > $1::bigint or k.bytes > $2::bigint order by k.created_at, k.id limit $3
),
deleted as (
    delete from grns.dead_letters d
    where d.id = any(array(
        -- one that is being sent again is left alone
        select l.id from grns.dead_letters l
        where l.id = any(array(select e.id from excess e)) and l.state = 'new'
        for update skip locked
    ))
    returning d.id, d.workspace, d.reason, d.subject, d.body_sha256, octet_length(d.body) as body_size
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, causation_id, payload)
    select 0, d.workspace, 'evt.dead_letter.expired', replace(d.id::text, '-', ''), d.id,
        json_build_object('dead_letter_id', d.id, 'reason', d.reason, 'subject', d.subject, 'body_size', d.body_size,
            'body_sha256', d.body_sha256)
    from deleted d
)
select d.id from deleted d
