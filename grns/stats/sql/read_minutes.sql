-- Reads what happened in each step of a stretch of time, where anything did.
-- $1 workspace, $2 since, $3 until, $4 step in seconds, $5 task type, null for all
select date_bin($4::double precision * interval '1 second', m.minute, timestamptz 'epoch') as at,
    sum(m.submitted)::bigint as submitted, sum(m.claimed)::bigint as claimed, sum(m.succeeded)::bigint as succeeded,
    sum(m.failed)::bigint as failed, sum(m.dead)::bigint as dead, sum(m.cancelled)::bigint as cancelled,
    sum(m.retried)::bigint as retried, sum(m.expired)::bigint as expired, sum(m.released)::bigint as released,
    sum(m.redriven)::bigint as redriven, sum(m.queue_count)::bigint as queue_count,
    sum(m.queue_ms_sum)::bigint as queue_ms_sum, sum(m.run_count)::bigint as run_count,
    sum(m.run_ms_sum)::bigint as run_ms_sum
from grns.task_minutes m
where m.workspace = $1 and m.minute >= $2 and m.minute < $3 and ($5::text is null or m.task_type = $5)
group by 1
order by 1
