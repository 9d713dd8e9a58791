-- Makes a worker known. Of HTTP workers, which have no process (pid 0), a workspace has no more rows than the newest:
-- clients may invent names, so the row of the one that has been silent for longest makes room.
-- If it has the name of an agent, it is that agent's latest life, unless another one has begun since. An agent that is not registered is made known with the defaults,
-- unless there are too many, or this is an HTTP worker: these invent names. No row: an agent of this name is of another pool.
-- $1 agent_id, $2 workspace, $3 agent_type, $4 host, $5 pid, $6 version, $7 concurrency, $8 task types,
-- $9 lease in seconds, $10 HTTP workers at most, $11 name of the agent (null: none), $12 agents of a workspace at most
with crowd as (
    select o.agent_id
    from grns.workers o
    where $5::integer = 0 and o.pid = 0 and o.workspace = $2 and o.agent_id <> $1
    order by o.last_seen_at desc
    offset $10::integer - 1
),
doomed as (
    select a.agent_id from crowd c join grns.workers a on a.agent_id = c.agent_id for update of a skip locked
),
gone as (
    delete from grns.workers a using doomed d where a.agent_id = d.agent_id
),
stranger as (
    select o.name from grns.agents o where o.workspace = $2 and o.name = $11::text and o.agent_type <> $3
),
agent as (
    insert into grns.agents as g (workspace, name, agent_type, max_concurrent_tasks, agent_id, started_at, last_seen_at)
    select $2, $11::text, $3, $7, $1, now(), now()
    where $11::text is not null and not exists (select from stranger) and (
        exists (select from grns.agents o where o.workspace = $2 and o.name = $11::text)
        or ($5::integer <> 0 and (select count(*) from grns.agents o where o.workspace = $2) < $12::integer))
    on conflict (workspace, name) do update
    set (started_at, ordered, agent_id, last_seen_at, stopped_at, is_blocked) = (
        select case when b.begins then clock_timestamp() else g.started_at end,
            case when b.begins then grns.replace_life(g, $1) else g.ordered end,
            case when b.begins then $1 else g.agent_id end,
            case when b.begins or g.agent_id = $1 then now() else g.last_seen_at end,
            case when not b.begins then g.stopped_at end,
            g.is_blocked and not b.begins and g.agent_id <> $1
        from (select grns.begins_life(g, $1, now()) as begins) as b
    )
    returning g.max_concurrent_tasks
)
insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency, task_types, lease_seconds, agent)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $11::text
where not exists (select from stranger)
on conflict (agent_id) do update
set last_seen_at = now(), worked_at = now(), stopped_at = null, version = excluded.version, concurrency = excluded.concurrency,
    task_types = excluded.task_types, lease_seconds = excluded.lease_seconds
returning (select a.max_concurrent_tasks from agent a) as most
