-- Pauses tasks that do not run: they wait until they are resumed. $1 ids, $2 workspace, $3 who asks, $4 why
with wanted as (
    select w.id from unnest($1::text[]) as w (id)
),
locked as (
    select t.id, t.status as was, t.waits_for as waited_for, case when t.waits_for is distinct from 'signal' then t.next_attempt_at end as due_at, t.last_message_id as led_here,
        gen_random_uuid() as event_id
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.workspace = $2
    order by t.id
    for no key update of t
),
paused as (
    -- The whole shape is set, as in `cancel`: the statement's snapshot may know the task as one that runs.
    update grns.tasks t
    set status = 'waiting', waits_for = 'pause', owner_agent_id = null, lease_id = null, lease_until = null,
        queued_at = null, next_attempt_at = null, finished_at = null,
        updated_at = statement_timestamp(), version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.id = l.id and l.was in ('queued', 'retry_wait', 'waiting') and l.waited_for is distinct from 'pause'
    returning t.*, l.event_id, l.led_here, l.was, l.due_at
),
noted as (
    insert into grns.task_pauses as p (task_id, workspace, paused_by, reason, due_at)
    select p.id, p.workspace, $3, $4, p.due_at from paused p
    on conflict (task_id) do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, reason = excluded.reason,
        due_at = excluded.due_at
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, was, actor,
        payload)
    select p.version, p.event_id, p.workspace, p.id, 'evt.task.waiting', p.attempt, p.trace_id, p.led_here,
        case p.was when 'retry_wait' then 't' else left(p.was, 1) end::"char", $3::text,
        json_build_object('task_id', p.id, 'task_type', p.task_type, 'agent_type', p.agent_type,
            'priority', p.priority, 'waits_for', 'pause', 'reason', 'paused', 'actor', $3::text, 'why', $4::text)
    from paused p
)
select p.id, 'paused' as answer from paused p
union all
select l.id, case when l.waited_for = 'pause' then 'paused' else l.was end
from locked l
where l.was not in ('queued', 'retry_wait', 'waiting') or l.waited_for = 'pause'
