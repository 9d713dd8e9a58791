-- Records one step, which no attempt has recorded, of an attempt that owns its task. If it is not recorded, `record_steps` says why.
-- $1 id, $2 attempt, $3 lease_id, $4 workspace, $5 name, $6 kind, $7 value
with held as (  -- the task stays this attempt's until the step is committed
    select t.id, t.attempt, t.workspace
    from grns.tasks t
    where t.id = $1 and t.attempt = $2 and t.lease_id = $3 and t.workspace = $4 and t.status = 'running'
    for share skip locked
)
insert into grns.steps (task_id, name, workspace, kind, value, attempt)
select h.id, $5, h.workspace, $6, $7::text::jsonb, h.attempt
from held h
on conflict (task_id, name) do nothing
returning name
