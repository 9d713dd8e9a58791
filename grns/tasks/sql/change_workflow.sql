-- Pauses a workflow, resumes it, or notes that an operation cancels or redrives its tasks. While a workflow is paused, the
-- follower queues none of its tasks; once it is to be cancelled, the follower ends them instead. Answers with its status,
-- whether it is to be cancelled, and whether it was changed; with nothing if there is none.
-- $1 id, $2 workspace, $3 verb (pause, resume, cancel, redrive), $4 who asks, $5 reason
with asked as materialized (  -- not overtaken by transactions that add tasks, one after another
    select pg_advisory_xact_lock(grns.workflow_lock($1::text))
),
held as (
    select k.id, k.status, k.cancel_requested_at is not null and k.status = 'running' as is_ending,
        k.paused_at is not null as is_paused
    from asked
    cross join grns.workflows k
    where k.id = $1 and k.workspace = $2
    for no key update of k
),
changed as (
    update grns.workflows k
    set paused_at = case $3::text when 'pause' then coalesce(k.paused_at, now()) when 'redrive' then k.paused_at end,
        paused_by = case $3::text when 'pause' then $4::text when 'redrive' then k.paused_by end,
        pause_reason = case $3::text when 'pause' then $5::text when 'redrive' then k.pause_reason end,
        sealed_at = case $3::text when 'cancel' then coalesce(k.sealed_at, now()) else k.sealed_at end,
        cancel_requested_at = case $3::text when 'cancel' then coalesce(k.cancel_requested_at, now())
            when 'redrive' then null else k.cancel_requested_at end,
        -- its failures were counted, or are not to be any more: what is redriven runs to its end
        stopped_at = case when $3::text = 'redrive' and k.sealed_at is not null and num_nonnulls(k.fail_count, k.fail_share) > 0 then coalesce(k.stopped_at, now())
            else k.stopped_at end,
        version = k.version + 1
    from held h
    where k.id = h.id and case $3::text when 'redrive' then h.status <> 'succeeded' and not h.is_ending
        when 'resume' then h.is_paused and h.status = 'running' else h.status = 'running' end
    returning k.*
),
logged as (
    insert into grns.events (version, workspace, task_id, kind, trace_id, actor, payload)
    select c.version, c.workspace, c.id,
        'evt.workflow.' || case $3::text when 'pause' then 'paused' when 'resume' then 'resumed'
            when 'cancel' then 'cancel_requested' else 'redriven' end,
        c.trace_id, $4::text,
        json_build_object('workflow_id', c.id, 'name', c.name, 'status', c.status, 'total', w.required,
            'succeeded', w.met, 'failed', w.broken, 'actor', $4::text, 'reason', $5::text)
    from changed c
    join grns.waits w on w.task_id = c.id
)
select h.status, h.is_ending, exists (select from changed) as is_changed from held h
