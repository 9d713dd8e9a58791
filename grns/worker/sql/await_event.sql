-- Notes which event a task waits for, from its creation on, or behind one that it has: unless that is noted.
-- $1 id, $2 attempt, $3 lease_id, $4 workspace, $5 step, $6 kind, $7 what its payload contains, $8 behind
insert into grns.event_waits (task_id, step, workspace, kind, wanted, behind)
select t.id, $5, t.workspace, $6, $7::text::jsonb,
    greatest($8::bigint, coalesce((
        select min(e.seq) from grns.events e where e.task_id = t.id and starts_with(e.kind, 'evt.task.')), 0))
from grns.tasks t
where t.id = $1 and t.attempt = $2 and t.lease_id = $3 and t.workspace = $4 and t.status = 'running'
on conflict (task_id, step) do nothing
