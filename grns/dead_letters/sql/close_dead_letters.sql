-- Closes messages that belong to no task, and tells of each: they were sent again, or discarded.
-- $1 ids, $2 workspace, $3 new state (redriven, discarded), $4 who asks, $5 why, $6 whether they were mended first
with closed as (
    update grns.dead_letters d
    set state = $3, updated_at = statement_timestamp()
    where d.id = any($1::uuid[]) and d.workspace = $2 and d.state = 'new'
    returning d.id, d.workspace, d.subject, d.state, d.reason
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, causation_id, actor, payload)
    select 0, c.workspace, case c.state when 'redriven' then 'evt.dead_letter.resent' else 'evt.dead_letter.discarded' end,
        replace(c.id::text, '-', ''), c.id, $4::text,
        json_build_object('dead_letter_id', c.id, 'reason', c.reason, 'subject', c.subject, 'actor', $4::text,
            'why', $5::text, 'is_fixed', $6::boolean)
    from closed c
)
select c.id from closed c
