-- Steps.
-- What a handler has recorded: a later attempt gets the value and does not run the step again. Only the attempt that owns
-- the task writes one, and the first value stays.
create table grns.steps (
    task_id     text collate "C" not null,
    name        text collate "C" not null,
    workspace   text collate "C" not null,
    kind        text not null,
    value       jsonb not null,                   -- of a sleep: `until`, in seconds since 1970
    attempt     integer not null,
    recorded_at timestamptz not null default clock_timestamp(),
    primary key (task_id, name),
    constraint steps_kind check (kind in ('step', 'sleep', 'fan_out', 'join'))
);

-- Whether an attempt has recorded a step: then it does not count if it fails.
create function grns.has_recorded(task_id text, attempt integer) returns boolean language sql stable as $$
    select exists (select from grns.steps s where s.task_id = $1 and s.attempt = $2)
$$;

-- Lets a task wait whose handler asks for it, and records why: its slot is free, and the attempt does not count. It waits for a
-- time (`seconds`), or until `required` of the tasks `needed` have ended, however they did. Answers as grns/worker/sql/finish.sql:
-- `waiting`, `lost`, `locked`; or `cancelled`: a cancel was asked for, and nothing is written.
-- Of a step that an earlier attempt has recorded, the time stays.
create function grns.suspend_task(
    id text, attempt integer, lease_id uuid, workspace text, event_id uuid, causation_id uuid, step text,
    seconds double precision, needed text[], required integer
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    task grns.tasks;
    due timestamptz;
    clock constant timestamptz := clock_timestamp();
begin
    select t.* into task from grns.tasks t
    where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace and t.status = 'running'
    for no key update skip locked;
    if not found then
        return case when exists (
            select from grns.tasks t
            where t.id = id and t.attempt = attempt and t.lease_id = lease_id and t.workspace = workspace
                and t.status = 'running') then 'locked' else 'lost' end;
    elsif task.cancel_requested_at is not null then
        return 'cancelled';
    end if;
    if needed is null then
        insert into grns.steps as s (task_id, name, workspace, kind, value, attempt)
        values (id, step, workspace, 'sleep', jsonb_build_object('until', extract(epoch from clock) + seconds), attempt)
        on conflict (task_id, name) do nothing;
        select to_timestamp((s.value ->> 'until')::double precision) into due
        from grns.steps s where s.task_id = id and s.name = step;
    else
        -- The follower counts what has ended: it reads the event below.
        insert into grns.needs as e (task_id, needs, workspace, outcome)
        select id, n.needs, workspace, 'end' from unnest(needed) as n (needs)
        on conflict (task_id, needs) do update set outcome = 'end' where e.outcome <> 'end';
        perform from grns.waits w where w.task_id = id for no key update;  -- the follower may be at it
        with recounted as (
            select count(*) filter (where e.ended_as is null) as open,
                count(*) filter (where grns.is_met(e.outcome, e.ended_as)) as met,
                count(*) filter (where grns.is_broken(e.outcome, e.ended_as)) as broken,
                count(*) filter (where grns.is_met(e.outcome, e.ended_as) and e.needs <> all(needed)) as before
            from grns.needs e where e.task_id = id
        )
        insert into grns.waits as w (task_id, workspace, open, met, broken, required)
        select id, workspace, r.open, r.met, r.broken, r.before + required from recounted r
        on conflict (task_id) do update
        set open = excluded.open, met = excluded.met, broken = excluded.broken, required = excluded.required, run_at = null;
    end if;
    update grns.tasks t
    set status = 'waiting', waits_for = case when needed is null then 'time' else 'tasks' end, next_attempt_at = due,
        owner_agent_id = null, lease_id = null, lease_until = null, uncounted_attempts = t.uncounted_attempts + 1,
        updated_at = clock, version = t.version + 1, last_message_id = event_id
    where t.id = id
    returning t.* into task;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was, task_type,
        payload)
    values (task.version, event_id, workspace, id, 'evt.task.waiting', attempt, task.trace_id, causation_id, 'r',
        task.task_type,
        json_build_object('task_id', id, 'task_type', task.task_type, 'agent_type', task.agent_type,
            'priority', task.priority, 'waits_for', task.waits_for, 'next_attempt_at', due, 'attempt', attempt,
            'step', step));
    return 'waiting';
end
$$;
