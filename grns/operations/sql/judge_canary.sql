-- Looks at an operation's canary: where it has succeeded, the others may follow; where it has ended otherwise, the
-- operation pauses for a decision. A canary that has succeeded is counted here, and others by `follow_operation`: both
-- hold the operation's row. Answers with the operation's state, and nothing where it is not ours.
-- $1 operation, $2 epoch, $3 when to look again, in seconds
with held as (
    select o.id, o.ctid as place, o.canary_task_id
    from grns.operations o
    where o.id = $1 and o.epoch = $2 and o.state = 'canary'
    for update
),
seen as (
    select h.id, h.place, h.canary_task_id, coalesce(t.status, 'missing') as status, case
            when t.id is null then 'its canary ' || h.canary_task_id || ' is gone'
            when t.status = 'cancelled' then 'its canary ' || t.id || ' is cancelled'
            when t.status in ('dead', 'failed')
                then 'its canary ' || t.id || ' is ' || t.status || coalesce(': ' || (t.last_error ->> 'class'), '')
        end as trouble
    from held h
    left join grns.tasks t on t.id = h.canary_task_id
),
forgotten as (
    delete from grns.operation_tasks m
    using (
        select p.place
        from seen s
        cross join lateral (
            select f.ctid as place from grns.operation_tasks f
            where f.operation_id = s.id and f.task_id = s.canary_task_id
            offset 0
        ) as p
        where s.status = 'succeeded'
    ) as f
    where m.ctid = f.place
    returning m.task_id
),
judged as (
    update grns.operations o
    set succeeded = o.succeeded + (select count(*) from forgotten),
        state = case
            when s.trouble is not null then 'paused'
            when s.status = 'succeeded' then 'running'
            else 'canary'
        end,
        state_reason = s.trouble, resumes_as = case when s.trouble is not null then 'running' end,
        due_at = case
            when s.trouble is not null then null
            when s.status = 'succeeded' then now()
            else now() + $3::double precision * interval '1 second'
        end
    from seen s
    where o.ctid = s.place
    returning o.id, o.workspace, o.action, o.trace_id, o.state, o.state_reason
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, payload)
    select 0, j.workspace, 'evt.operation.changed', j.trace_id,
        json_build_object('operation_id', j.id::text, 'action', j.action, 'state', j.state, 'was', 'canary',
            'reason', j.state_reason, 'actor', null)
    from judged j
    where j.state <> 'canary'
)
select j.state, j.state_reason from judged j
