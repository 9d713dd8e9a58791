-- Reads operations, the latest first. $1 workspace, $2 states (null: all), $3 first and $4 last number, $5 rows at most
select o.id, o.workspace, o.action, o.filter, o.canary, o.rate_per_minute, o.patch::text as patch, o.agent_type,
    o.reason, o.created_by, o.created_at, o.matched, o.is_exact, o.state, o.state_reason, o.canary_task_id, o.moved,
    o.skipped, o.skipped_by::text as skipped_by, o.succeeded, o.failed_again, o.ended_otherwise, o.moved_at, o.ended_at
from grns.operations o
where o.workspace = $1 and o.id between $3 and $4 and ($2::text[] is null or o.state = any($2::text[]))
order by o.id desc
limit $5
