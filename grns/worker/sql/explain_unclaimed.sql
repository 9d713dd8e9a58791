-- Says why tasks could not be claimed.
-- $1 ids, $2 workspace, $3 agent_type, $4 task types with a handler
select w.id, t.agent_type, t.task_type, t.priority,
    case
        when t.id is null then 'unknown_task'
        when t.workspace <> $2 then 'other_workspace'
        when t.status in ('succeeded', 'failed', 'dead', 'cancelled') then 'terminal'
        when t.status = 'running' then 'lost_race'
        -- whatever queues it sends another command
        when t.next_attempt_at > now() or t.status = 'waiting' or (t.status = 'retry_wait' and t.limits is not null)
            then 'not_due'
        when t.agent_type <> $3 then 'other_agent_type'
        when t.route <> '' then 'routed'
        when not t.task_type = any($4::text[]) then 'no_handler'
        when exists (
            select from grns.pauses p
            where p.workspace = $2 and p.agent_type = $3 and p.task_type in ('', t.task_type)
                and (p.until is null or p.until > now())
        ) then 'paused'
        else 'locked'
    end as reason
from unnest($1::text[]) as w (id)
left join grns.tasks t on t.id = w.id
