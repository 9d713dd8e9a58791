-- Reads how the last tasks of schedules are, and what they still wait for, once these are locked. $1 ids
select t.id, t.status, t.waits_for,
    array(select e.needs from grns.needs e where e.task_id = t.id and e.ended_as is null) as needs
from grns.tasks t where t.id = any($1::text[])
