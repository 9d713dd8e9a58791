-- Reads the latest lines that handlers of a task have logged, the latest first. $1 id, $2 workspace, $3 least level, $4 how many
select l.at, l.level, l.attempt, l.message, l.fields::text as fields
from grns.task_lines l
where l.task_id = $1 and l.workspace = $2 and l.level >= $3
order by l.attempt desc, l.number desc
limit $4
