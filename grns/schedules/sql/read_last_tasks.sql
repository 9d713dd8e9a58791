-- Reads how the last tasks of schedules are, and which of those before them they still wait for, once these are locked. $1 ids
select t.id, t.status,
    array(
        select e.needs from grns.needs e
        where e.task_id = t.id and e.ended_as is null and e.name is not null  -- not what its handler waits for
        order by e.needs desc
    ) as needs
from grns.tasks t where t.id = any($1::text[])
