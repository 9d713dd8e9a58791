-- Says how many tasks are in each state, as far as the log is counted. $1 workspace
select k.status, greatest(sum(k.count), 0)::bigint as count
from grns.task_counts k
where k.workspace = $1
group by k.status
