-- Pauses an operation, lets it go on, or ends it before it is done. Answers with the state that it was in and, where it
-- could be changed from there, the one that it is in now; with nothing where there is none.
-- $1 its number, $2 workspace (null: whichever), $3 verb (pause, resume, cancel, fail), $4 who asks (null: grns itself),
-- $5 reason, $6 epoch (null: whichever)
with held as (
    select o.id, o.state as was,
        case $3
            when 'pause' then case when o.state in ('pending', 'canary', 'running') then 'paused' end
            when 'resume' then o.resumes_as
            when 'cancel' then case when o.ended_at is null then 'cancelled' end
            when 'fail' then case when o.state in ('pending', 'canary', 'running') then 'failed' end
        end as target
    from grns.operations o
    where o.id = $1 and o.workspace = coalesce($2, o.workspace) and o.epoch = coalesce($6, o.epoch)
    for update
),
changed as (
    update grns.operations o
    set state = h.target, state_reason = $5, resumes_as = case h.target when 'paused' then h.was end,
        due_at = case when h.target in ('pending', 'canary', 'running') then now() end,
        ended_at = case when h.target in ('cancelled', 'failed') then now() end
    from held h
    where o.id = h.id and h.target is not null
    returning o.id, o.workspace, o.action, o.trace_id, o.state, o.state_reason, o.moved, o.skipped, o.failed_again, h.was
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, c.workspace,
        case when c.state in ('cancelled', 'failed') then 'evt.operation.ended' else 'evt.operation.changed' end,
        c.trace_id, $4::text,
        json_build_object('operation_id', c.id::text, 'action', c.action, 'state', c.state, 'was', c.was,
            'reason', c.state_reason, 'actor', $4::text, 'moved', c.moved, 'skipped', c.skipped,
            'failed_again', c.failed_again)
    from changed c
)
select h.was, c.state from held h left join changed c on true
