-- Writes a new command for queued tasks: commands of the shared subject for other pools.
-- $1 ids, $2 causation_ids
with wanted as (
    select w.id, w.causation_id from unnest($1::text[], $2::uuid[]) as w (id, causation_id)
),
logged as (
    insert into grns.events (version, workspace, task_id, kind, attempt, route, trace_id, causation_id, payload)
    select t.version, t.workspace, t.id, 'cmd.task.execute', t.attempt, grns.command_route(t.agent_type, t.priority, t.route),
        t.trace_id, w.causation_id,
        json_build_object('task_id', t.id, 'target_agent_type', t.agent_type,
            'reason', coalesce(t.queued_reason, 'new_task'))
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.status = 'queued' and t.route = ''
    returning task_id
)
select l.task_id as id from logged l
