-- Says how many tasks of each workspace are in each state, as far as the log is counted; it reads no task.
select k.workspace, k.status, greatest(sum(k.count), 0)::bigint as count
from grns.task_counts k
group by k.workspace, k.status
