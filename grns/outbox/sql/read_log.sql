-- Reads what became visible of the numbers that were missing, and what lies beyond the highest number
-- seen; with the lower bound of the snapshot that says so (one row with nulls where there is nothing).
-- $1 and $2 bounds of the missing numbers, $3 highest number seen, $4 rows at most, of each
with late as (
    select e.*
    from unnest($1::bigint[], $2::bigint[]) as m (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id, e.causation_id,
            e.payload, e.created_at
        from grns.events e
        where e.seq >= m.lower_seq and e.seq < m.upper_seq
        order by e.seq
        limit $4
    ) as e
    order by e.seq
    limit $4
),
fresh as (
    select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id, e.causation_id,
        e.payload, e.created_at
    from grns.events e
    where e.seq > $3
    order by e.seq
    limit $4
)
select pg_snapshot_xmin(s.snapshot)::text::bigint as snapshot_xmin,
    r.seq, r.version, r.message_id::text as message_id, r.workspace, r.task_id, r.kind, r.route, r.trace_id,
    r.causation_id::text as causation_id, r.payload::text as payload, r.created_at
from (select pg_current_snapshot() as snapshot) as s
left join (select l.* from late l union all select f.* from fresh f) as r on true
order by r.seq
