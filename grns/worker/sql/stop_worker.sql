-- Notes that a worker has ended in order, and its agent with it. $1 agent_id
with stopped as (
    update grns.workers a set last_seen_at = now(), stopped_at = now() where a.agent_id = $1
    returning a.agent_id, a.workspace, a.agent
),
forgotten as (
    delete from grns.earlier_lives e using stopped s
    where e.workspace = s.workspace and e.name = s.agent and e.agent_id = s.agent_id
),
gone as (
    update grns.agents g
    set last_seen_at = now(), stopped_at = now(), running = 0, current_task_id = null, progress_percent = null, current_step = null
    from stopped s
    where g.workspace = s.workspace and g.name = s.agent and g.agent_id = s.agent_id
)
select s.agent_id from stopped s
