-- Lets the holder of a secret answer a question once, instead of one that could before. $1 id, $2 workspace, $3 hash of the secret, $4 for
-- how many seconds, $5 who makes the link
with linked as (
    update grns.questions q
    set link_hash = $3, linked_by = $5, link_until = least(q.due_at, clock_timestamp() + $4::double precision * interval '1 second')
    from grns.tasks t
    where q.id = $1 and q.workspace = $2 and q.state = 'open' and t.id = q.task_id and t.finished_at is null
        and not (q.kind = 'approval' and q.submitted_by = $5 and $5 like 'key:%')
    returning q.id, q.title, q.link_until, t.id as task_id, t.workspace, t.version, t.attempt, t.trace_id, t.last_message_id
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    select l.version, gen_random_uuid(), l.workspace, l.task_id, 'evt.question.linked', l.attempt, l.trace_id, l.last_message_id, $5,
        json_build_object('task_id', l.task_id, 'question_id', l.id, 'title', l.title, 'until', l.link_until, 'actor', $5::text)
    from linked l
)
select l.link_until from linked l
