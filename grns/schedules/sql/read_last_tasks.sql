-- Reads how the last tasks of schedules are, and which of those before them they still wait for, once these are locked. $1 ids
select t.id, t.status,
    array(
        select e.needs from grns.needs e
        join grns.tasks o on o.id = e.needs and o.task_type = t.task_type and o.agent_type = t.agent_type
        where e.task_id = t.id and e.ended_as is null
        order by e.needs desc
    ) as needs
from grns.tasks t where t.id = any($1::text[])
