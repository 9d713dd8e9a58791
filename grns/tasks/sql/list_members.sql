-- Lists the tasks of a workflow, its last ones too, what each needs, and what it still waits for. $1 workflow, $2 workspace, $3 behind
-- this id, $4 rows at most
with members as (
    select e.needs as id, e.name, false as is_last from grns.needs e where e.task_id = $1 and e.workspace = $2
    union all
    select e.task_id, null, true from grns.needs e where e.needs = $1 and e.workspace = $2
)
select coalesce(m.name, t.task_type) as name, t.id, t.task_type, t.agent_type, t.status, t.waits_for,
    array(
        select coalesce(e.name, e.needs) from grns.needs e
        where e.task_id = t.id and e.ended_as is null and t.waits_for = 'tasks'
        order by e.needs
        limit 20
    ) as waits_on,
    array(select e.needs from grns.needs e where e.task_id = t.id order by e.needs limit 500) as needs,
    t.attempt, m.is_last, t.started_at, t.finished_at
from members m
join grns.tasks t on t.id = m.id
where t.id > $3
order by t.id
limit $4
