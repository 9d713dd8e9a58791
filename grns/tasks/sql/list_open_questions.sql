-- Lists open questions, the latest first. $1 workspace, $2 whom they ask (null: any), $3 and $4 asked before this time, and id, $5 how many
-- at most, $6 only of this task (null: any)
select q.id, q.workspace, q.task_id, t.task_type, q.kind, q.title, q.asked_of, 'open' as state, q.asked_at, q.due_at,
    q.answered_by, q.answered_at, q.seen_at
from grns.questions q
join grns.tasks t on t.id = q.task_id
where q.workspace = $1 and q.state = 'open' and t.finished_at is null and coalesce(q.due_at > now(), true)
    and ($2::text is null or $2 = any(q.asked_of)) and ($6::text is null or q.task_id = $6) and (q.asked_at, q.id) < ($3::timestamptz, $4::uuid)
order by q.asked_at desc, q.id desc
limit $5
