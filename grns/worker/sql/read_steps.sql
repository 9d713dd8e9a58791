-- Reads the steps of a task. `seconds` is how long a sleep has yet to last. $1 id, $2 workspace
select s.name, s.kind, s.value::text as value,
    case when s.kind = 'sleep' then
        (s.value ->> 'until')::double precision - extract(epoch from clock_timestamp())::double precision
    end as seconds
from grns.steps s
where s.task_id = $1 and s.workspace = $2
