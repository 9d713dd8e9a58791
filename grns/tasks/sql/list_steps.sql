-- Lists the steps that the attempts of a task have recorded, in order; of a large value only its size.
-- $1 id, $2 workspace, $3 and $4 behind this time and name, $5 rows at most, $6 largest value in bytes
select s.name, s.kind, s.attempt, s.recorded_at, octet_length(s.value::text) as value_bytes,
    case when octet_length(s.value::text) <= $6 then s.value::text end as value
from grns.steps s
where s.task_id = $1 and s.workspace = $2 and (s.recorded_at, s.name) > ($3, $4)
order by s.recorded_at, s.name
limit $5
