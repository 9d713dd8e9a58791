-- Queues tasks that wait for room in their limits, and writes down how many more of their keys may begin; nothing where
-- another admitter leads by now. What another session has locked or changed is left out. The first row stands for no task.
-- $1 epoch, $2 lease in seconds, $3 ids, $4 workspaces, $5 keys, $6 tokens, $7 their times in seconds
with held as (
    update grns.leases l set until = now() + $2::double precision * interval '1 second'
    where l.name = 'admitter' and l.epoch = $1
    returning l.name
),
-- Each by its primary key: the planner would rather read all that waits for room.
found as materialized (
    select f.id, f.place, f.last_message_id
    from held
    cross join unnest($3::text[]) as w (id)
    cross join lateral (
        select t.id, t.ctid as place, t.last_message_id, t.waits_for from grns.tasks t where t.id = w.id offset 0
    ) as f
    where f.waits_for = 'limit'
),
locked as (
    select t.id, t.ctid as place, t.last_message_id as led_here, gen_random_uuid() as event_id
    from found f
    join grns.tasks t on t.ctid = f.place
    where t.id = f.id and t.last_message_id = f.last_message_id
    order by t.id
    for no key update of t skip locked
),
admitted as (
    update grns.tasks t
    set status = 'queued', waits_for = null, queued_at = now(), queued_reason = 'admitted', updated_at = now(),
        version = t.version + 1, last_message_id = l.event_id
    from locked l
    where t.ctid = l.place  -- what was changed before it was locked is not found here
    returning t.id, t.version, t.workspace, t.task_type, t.agent_type, t.priority, t.route, t.attempt, t.trace_id, l.event_id,
        l.led_here
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, route, trace_id, causation_id, was,
        payload)
    select a.version, a.event_id, a.workspace, a.id, 'evt.task.queued', a.attempt,
        grns.command_route(a.agent_type, a.priority, a.route), a.trace_id, a.led_here, 'w'::"char",
        json_build_object('task_id', a.id, 'task_type', a.task_type, 'agent_type', a.agent_type,
            'priority', a.priority, 'reason', 'admitted')
    from admitted a
),
kept as (
    insert into grns.limit_tokens as k (workspace, key, tokens, filled_at)
    select n.workspace, n.key, n.tokens, to_timestamp(n.filled_at)
    from held
    cross join unnest($4::text[], $5::text[], $6::double precision[], $7::double precision[])
        as n (workspace, key, tokens, filled_at)
    on conflict (workspace, key) do update set tokens = excluded.tokens, filled_at = excluded.filled_at
)
select null as id, null as workspace, null as agent_type from held
union all
select a.id, a.workspace, a.agent_type from admitted a
