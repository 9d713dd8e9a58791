-- Changes what people say of an issue, if it is as they have seen it, and notes that they did.
-- $1 workspace, $2 fingerprint, $3 the version that they have seen (null: whatever it is), $4 names of what changes,
-- $5 state, $6 note, $7 owner, $8 snoozed_until, $9 who changes it
with known as (
    select i.workspace, i.fingerprint, i.state as was
    from grns.issues i
    where i.workspace = $1 and i.fingerprint = $2 and ($3::integer is null or i.version = $3)
    for no key update
),
changed as (
    update grns.issues i
    set state = case when 'state' = any($4::text[]) then $5::text else i.state end,
        state_by = case when 'state' = any($4::text[]) then $9::text else i.state_by end,
        state_at = case when 'state' = any($4::text[]) then now() else i.state_at end,
        note = case when 'note' = any($4::text[]) then $6::text else i.note end,
        owner = case when 'owner' = any($4::text[]) then $7::text else i.owner end,
        snoozed_until = case when 'snoozed_until' = any($4::text[]) then $8::timestamptz else i.snoozed_until end,
        version = i.version + 1
    from known k
    where i.workspace = k.workspace and i.fingerprint = k.fingerprint
    returning i.*, k.was
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, c.workspace, 'evt.issue.changed', replace(gen_random_uuid()::text, '-', ''), $9::text,
        json_build_object('fingerprint', c.fingerprint, 'state', c.state, 'was', c.was, 'error_class', c.error_class,
            'sample_task_id', c.sample_task_id, 'note', c.note, 'owner', c.owner, 'snoozed_until', c.snoozed_until,
            'actor', $9::text)
    from changed c
)
select c.fingerprint, c.version from changed c
