-- Lists questions, the latest first. $1 workspace, $2 state (null: any), $3 whom they ask (null: any), $4 and $5 asked before this time, and
-- id, $6 how many at most, $7 only of this task (null: any)
select q.id, q.workspace, q.task_id, t.task_type, q.kind, q.title, q.asked_of, s.state as state, q.asked_at, q.due_at,
    q.answered_by, q.answered_at, q.seen_at
from grns.questions q
join grns.tasks t on t.id = q.task_id
cross join lateral (
    select case when q.state <> 'open' then q.state when t.finished_at is not null then 'ended'
        when q.due_at <= now() then 'expired' else 'open' end as state
) as s
where q.workspace = $1 and ($2::text is null or s.state = $2)
    and ($3::text is null or $3 = any(q.asked_of)) and ($7::text is null or q.task_id = $7) and (q.asked_at, q.id) < ($4::timestamptz, $5::uuid)
order by q.asked_at desc, q.id desc
limit $6
