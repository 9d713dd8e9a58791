-- Asks for something to be done to every task that a filter finds.
-- $1 workspace, $2 action, $3 filter, $4 whether one task goes first, $5 rate a minute, $6 merge patch, $7 agent_type,
-- $8 reason, $9 who asks, $10 how many tasks there are, $11 whether that is all of them
with made as (
    insert into grns.operations (workspace, action, filter, canary, rate_per_minute, patch, agent_type, reason,
        created_by, matched, is_exact)
    values ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11)
    returning *
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, m.workspace, 'evt.operation.created', m.trace_id, m.created_by,
        json_build_object('operation_id', m.id::text, 'action', m.action, 'state', m.state, 'filter', m.filter,
            'matched', m.matched, 'reason', m.reason, 'actor', m.created_by)
    from made m
)
select m.id from made m
