-- Reads what all limits allow.
select l.workspace, l.name, l.max_tasks, l.rate_count / l.rate_seconds as per_second, l.burst,
    l.paused_at is not null as is_paused
from grns.limits l
