-- Returns the workspace of an open question that a secret may answer, and who made the link. $1 id, $2 hash of the secret
select q.workspace, q.linked_by
from grns.questions q
join grns.tasks t on t.id = q.task_id
where q.id = $1 and q.link_hash = $2 and q.link_until > clock_timestamp() and q.state = 'open' and t.finished_at is null
