-- Lists the agent types that have workers, tasks in the queue or a pause. Each is one step through three indexes.
-- $1 workspace, $2 the agent type behind which to go on, $3 how many at most
with recursive step as (
    select $2::text collate "C" as agent_type, 0 as place
    union all
    select least(
            (select a.agent_type from grns.agents a
            where a.workspace = $1 and a.agent_type > s.agent_type and a.stopped_at is null
            order by a.agent_type
            limit 1),
            (select t.agent_type from grns.tasks t
            where t.workspace = $1 and t.agent_type > s.agent_type and t.queued_at is not null
            order by t.agent_type
            limit 1),
            (select p.agent_type from grns.pauses p
            where p.workspace = $1 and p.agent_type > s.agent_type
            order by p.agent_type
            limit 1)),
        s.place + 1
    from step s
    where s.place < $3::integer and s.agent_type is not null
)
select s.agent_type from step s where s.place > 0 and s.agent_type is not null order by s.place
