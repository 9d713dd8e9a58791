-- Lists what one webhook was told of, the latest first. Each row has with it how many were looked at, and where that
-- ended; one row with nulls where none of them is wanted.
-- $1 workspace, $2 webhook, $3 before which number, null for the latest, $4 states, $5 rows to look at, $6 rows at most
with looked as materialized (
    select d.seq, d.webhook_id, d.message_id, d.kind, d.task_id, d.created_at, d.state, d.attempts,
        case when d.claim_id is null then d.due_at end as due_at, d.attempted_at, d.duration_ms, d.status_code, d.error,
        d.ended_at
    from grns.webhook_deliveries d
    where d.webhook_id = $2 and d.workspace = $1 and d.seq < coalesce($3::bigint, 9223372036854775807)
    order by d.seq desc
    limit $5
)
select f.*, l.looked_at, l.last_seq
from (select count(*) as looked_at, min(o.seq) as last_seq from looked o) as l
left join lateral (
    select o.* from looked o where o.state = any($4::text[]) order by o.seq desc limit $6
) as f on true
order by f.seq desc
