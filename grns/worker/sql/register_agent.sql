-- Makes a worker known. Of agents over HTTP, which have no process (pid 0), a workspace has no more rows than the newest:
-- clients may invent names, so the row of the one that has been silent for longest makes room.
-- $1 agent_id, $2 workspace, $3 agent_type, $4 host, $5 pid, $6 version, $7 concurrency, $8 task types,
-- $9 lease in seconds, $10 agents over HTTP at most
with crowd as (
    select o.agent_id
    from grns.agents o
    where $5::integer = 0 and o.pid = 0 and o.workspace = $2 and o.agent_id <> $1
    order by o.last_seen_at desc
    offset $10::integer - 1
),
doomed as (
    select a.agent_id from crowd c join grns.agents a on a.agent_id = c.agent_id for update of a skip locked
),
gone as (
    delete from grns.agents a using doomed d where a.agent_id = d.agent_id
)
insert into grns.agents (agent_id, workspace, agent_type, host, pid, version, concurrency, task_types, lease_seconds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (agent_id) do update set last_seen_at = now(), worked_at = now(), stopped_at = null
returning agent_id
