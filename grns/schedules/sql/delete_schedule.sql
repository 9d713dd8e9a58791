-- Deletes a schedule, and what was decided for it. $1 workspace, $2 name, $3 when a worker declared it, which must not have
-- changed (null: in any case)
with gone as (
    delete from grns.schedules s
    where s.workspace = $1 and s.name = $2 and ($3::timestamptz is null or s.declared_at = $3)
    returning s.workspace, s.name
),
runs as (
    delete from grns.schedule_runs r using gone g where r.workspace = g.workspace and r.name = g.name
)
select g.name from gone g
