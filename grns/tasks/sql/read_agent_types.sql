-- Lists the agent types that have workers, tasks in the queue or a pause. Each is one step through three indexes.
-- $1 workspace, $2 the agent type behind which to go on, $3 how many at most
with recursive step as (
    select $2::text collate "C" as agent_type, 0 as place
    union all
    select found.agent_type, s.place + 1
    from step s
    cross join lateral (
        select min(f.agent_type) as agent_type
        from (
            (select a.agent_type from grns.workers a
            where a.workspace = $1 and a.agent_type > s.agent_type and a.stopped_at is null
            order by a.agent_type
            limit 1)
            union all
            (select t.agent_type from grns.tasks t
            where t.workspace = $1 and t.agent_type > s.agent_type and t.queued_at is not null
            order by t.agent_type
            limit 1)
            union all
            (select p.agent_type from grns.pauses p
            where p.workspace = $1 and p.agent_type > s.agent_type
            order by p.agent_type
            limit 1)
        ) as f
    ) as found
    where s.place < $3::integer and s.agent_type is not null
)
select s.agent_type from step s where s.place > 0 and s.agent_type is not null order by s.place
