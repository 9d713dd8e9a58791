-- Sets ended tasks aside: lists of what needs a person leave them out from now on. It is no transition.
-- Answers for each with `discarded`, with `discarded before`, or with the status of one that cannot be.
-- $1 ids, $2 workspace, $3 who asks, $4 reason
with wanted as (
    select distinct w.id from unnest($1::text[]) as w (id)
),
locked as (
    select t.id, case
            when t.status not in ('dead', 'failed', 'cancelled') then t.status
            when t.discarded_at is not null then 'discarded before'
            else 'discarded'
        end as answer
    from wanted w
    join grns.tasks t on t.id = w.id
    where t.workspace = $2
    order by t.id
    for no key update of t
),
discarded as (
    update grns.tasks t
    set discarded_at = now(), discarded_by = $3, updated_at = now()
    from locked l
    where t.id = l.id and l.answer = 'discarded'
    returning t.id, t.version, t.workspace, t.task_type, t.status, t.attempt, t.trace_id, t.last_message_id, t.fingerprint
),
logged as (
    insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    select d.version, d.workspace, d.id, 'evt.task.discarded', d.attempt, d.trace_id, d.last_message_id, $3::text,
        json_build_object('task_id', d.id, 'task_type', d.task_type, 'status', d.status, 'actor', $3::text,
            'reason', $4::text, 'fingerprint', case when d.status <> 'cancelled' then d.fingerprint end)
    from discarded d
)
select l.id, l.answer from locked l
