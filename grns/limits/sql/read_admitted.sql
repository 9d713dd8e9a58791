-- Reads all tasks that take room in their limits.
select t.id, t.workspace, t.limits, t.priority, t.status
from grns.tasks t
where t.limits is not null and (t.queued_at is not null or t.lease_until is not null)
