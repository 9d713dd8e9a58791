-- Looks through what waits for tasks, a page at a time, for what the follower should have seen: needs that have ended,
-- and tasks that are decided. There is nothing to find, unless a bug or a hand has changed rows.
-- $1 behind this id, $2 rows at most, $3 for how long, in seconds, it must have been so
with page as (
    select i.id
    from (
        (select t.id from grns.tasks t where t.waits_for = 'tasks' and t.id > $1 order by t.id limit $2)
        union all
        (select k.id from grns.workflows k where k.ended_at is null and k.id > $1 order by k.id limit $2)
    ) as i
    order by i.id
    limit $2
),
since as (
    select now() - $3::double precision * interval '1 second' as at
)
select (select max(p.id) from page p) as last_id, (select count(*) from page) as seen,
    array(
        select distinct e.needs
        from since s
        cross join page p
        join grns.needs e on e.task_id = p.id and (e.ended_as is null or e.ended_as = 'added')
        left join grns.tasks t on t.id = e.needs
        left join grns.workflows k on k.id = e.needs
        -- what has just begun to need a task that ended long ago is still to be read
        left join grns.tasks o on o.id = p.id
        left join grns.workflows f on f.id = p.id
        where coalesce(o.updated_at, f.created_at) < s.at and (
            coalesce(t.finished_at, k.ended_at) < s.at or (t.id is null and k.id is null)
            or (e.ended_as = 'added' and t.created_at < s.at) or (e.needs = p.id and k.sealed_at < s.at))
    ) as ended,
    array(
        select p.id
        from since s
        cross join page p
        join grns.waits w on w.task_id = p.id
        join grns.tasks t on t.id = p.id
        where t.updated_at < s.at
            and (w.met + w.open < w.required or (w.met >= w.required and not grns.is_paused(w.workflow_id)))
    ) as decided
