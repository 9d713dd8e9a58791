-- Questions to people.
-- What a handler has asked. Its task waits for the signal `question ID`, which nothing but the answer sends. A question whose task
-- has ended takes no answer: it stays open here, and lists leave it out.
create table grns.questions (
    id          uuid primary key,
    workspace   text collate "C" not null,
    task_id     text collate "C" not null,
    step        text not null,
    kind        text not null,
    title       text not null,
    body        text,
    evidence    jsonb,                            -- what is shown beside the title and the body
    form        jsonb not null,                   -- the JSON Schema of the answer: a flat object
    asked_of    text[] not null,                  -- whom, in the words of the installation: role:finance
    digest      text not null,                    -- of all that is shown; who answers names it
    attempt     integer not null,                 -- which one asked
    submitted_by text,                            -- who submitted the task: not who approves
    asked_at    timestamptz not null default clock_timestamp(),
    due_at      timestamptz,                      -- null: it has no time limit
    state       text not null default 'open',
    answer      jsonb,
    comment     text,
    answered_by text,
    answered_at timestamptz,
    seen_by     text,                             -- who looked at it first
    seen_at     timestamptz,
    link_hash   bytea,                            -- of the secret of a link that answers it once
    link_until  timestamptz,
    linked_by   text,
    constraint questions_shape check (kind in ('question', 'approval') and state in ('open', 'answered', 'expired'))
);
create index questions_task on grns.questions (task_id);
create index questions_open on grns.questions (workspace, asked_at, id) where state = 'open';
create index questions_unseen on grns.questions (asked_at) where state = 'open' and seen_at is null;
create index questions_asked on grns.questions (workspace, asked_at, id);

-- Takes an answer, records who gave it, and queues the task. Answers `answered`; `repeated` if the same answer of the same
-- person is there; or why it takes none: `taken` by another answer, `expired`, `changed` if what was shown is not what is asked,
-- `own` if an approval comes from the key that submitted the task, or the status of a task that has ended.
create function grns.answer_question(
    question_id uuid, shown_digest text, answer jsonb, workspace text default 'default', actor text default null,
    comment text default null, wakes boolean default true, secret_hash bytea default null
) returns text language plpgsql as $$
#variable_conflict use_variable
declare
    asked grns.questions;
    task grns.tasks;
    clock timestamptz;
begin
    if (jsonb_typeof(answer) = 'object' and octet_length(answer::text) <= 65536 and octet_length(coalesce(comment, '')) <= 16000)
        is not true
    then
        raise exception 'grns: an answer is an object of 64 KiB at most, with a comment of 16,000 bytes'
            using errcode = 'invalid_parameter_value', detail = 'bad_answer';
    end if;
    select t.* into task from grns.tasks t
    where t.id = (select q.task_id from grns.questions q where q.id = question_id and q.workspace = workspace)
    for no key update;
    if not found then
        raise exception 'grns: there is no question % in workspace %', question_id, workspace
            using errcode = 'no_data_found', detail = 'not_found';
    end if;
    select q.* into asked from grns.questions q where q.id = question_id for no key update;
    clock := clock_timestamp();
    if asked.state = 'answered' then
        return case when asked.answered_by is not distinct from actor and asked.answer = answer then 'repeated' else 'taken' end;
    elsif task.finished_at is not null then
        return task.status;
    elsif asked.state = 'expired' or asked.due_at <= clock then
        return 'expired';
    elsif asked.digest is distinct from shown_digest then
        return 'changed';
    elsif secret_hash is not null and (asked.link_hash = secret_hash and asked.link_until > clock) is not true then
        return 'unlinked';
    elsif asked.kind = 'approval' and asked.submitted_by in (actor, substr(actor, length('link:') + 1)) and actor ~ '^(link:)?key:' then
        return 'own';
    end if;
    if asked.kind = 'approval' and jsonb_typeof(answer -> 'approved') is distinct from 'boolean' then
        raise exception 'grns: an approval is answered with {"approved": true} or {"approved": false}'
            using errcode = 'invalid_parameter_value', detail = 'bad_answer';
    end if;
    update grns.questions q
    set state = 'answered', answer = answer, comment = comment, answered_by = actor, answered_at = clock, link_hash = null
    where q.id = question_id;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    values (task.version, gen_random_uuid(), workspace, task.id, 'evt.question.answered', task.attempt, task.trace_id,
        task.last_message_id, actor,
        json_build_object('task_id', task.id, 'question_id', question_id, 'title', asked.title, 'digest', asked.digest,
            'answer', answer, 'comment', comment, 'actor', actor));
    perform grns.deliver_signal(task, gen_random_uuid(), 'question ' || question_id, jsonb_build_object('answer', answer,
        'comment', comment, 'answered_by', actor, 'answered_at', extract(epoch from clock), 'digest', asked.digest), actor, wakes);
    return 'answered';
end
$$;

-- Asks what a handler asks, in the transaction that lets its task wait. If an earlier attempt has asked it, and no one has answered, it
-- is asked as it is now: an answer to what was shown before is refused.
create function grns.ask_question(task grns.tasks, step text, due timestamptz, question jsonb) returns void language plpgsql as $$
#variable_conflict use_variable
declare
    shown text;
    is_open boolean;
begin
    select q.digest, q.state = 'open' into shown, is_open from grns.questions q
    where q.id = (question ->> 'id')::uuid for no key update;
    if is_open is false then
        return;  -- it was answered meanwhile
    end if;
    insert into grns.questions as q (id, workspace, task_id, step, kind, title, body, evidence, form, asked_of, digest, attempt, due_at,
        submitted_by)
    select (question ->> 'id')::uuid, task.workspace, task.id, step, question ->> 'kind', question ->> 'title',
        question ->> 'body', question -> 'evidence', question -> 'form',
        array(select jsonb_array_elements_text(question -> 'asked_of')), question ->> 'digest', task.attempt, due, (
            select e.actor from grns.events e
            where e.task_id = task.id and starts_with(e.kind, 'evt.task.') and e.kind in ('evt.task.queued', 'evt.task.waiting')
                and e.version = 1 and e.attempt = 0
            order by e.seq
            limit 1)
    on conflict (id) do update
    set kind = excluded.kind, title = excluded.title, body = excluded.body, evidence = excluded.evidence, form = excluded.form,
        asked_of = excluded.asked_of, digest = excluded.digest, attempt = excluded.attempt, due_at = excluded.due_at,
        link_hash = case when q.digest = excluded.digest then q.link_hash end,
        seen_at = case when q.digest = excluded.digest then q.seen_at end,
        seen_by = case when q.digest = excluded.digest then q.seen_by end,
        submitted_by = coalesce(q.submitted_by, excluded.submitted_by);
    if shown is distinct from question ->> 'digest' then
        insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, payload)
        values (task.version, gen_random_uuid(), task.workspace, task.id, 'evt.question.asked', task.attempt, task.trace_id,
            task.last_message_id,
            json_build_object('task_id', task.id, 'question_id', question ->> 'id', 'kind', question ->> 'kind',
                'title', question ->> 'title', 'asked_of', question -> 'asked_of', 'due_at', due, 'digest', question ->> 'digest'));
    end if;
end
$$;

-- Takes an answer back that was given to something else than a handler asks now, whose task is locked: it is asked anew.
create function grns.reopen_question(task_id text, step text, digest text) returns void language sql as $$
    with reopened as (
        update grns.questions q
        set state = 'open', answer = null, comment = null, answered_by = null, answered_at = null
        where q.task_id = $1 and q.step = $2 and q.state = 'answered' and q.digest <> $3
        returning q.id
    )
    delete from grns.signals s using reopened r
    where s.task_id = $1 and s.name = 'question ' || r.id and s.taken_by is null
$$;

-- Notes that the time is over.
create function grns.expire_question(task_id text, step text) returns void language sql as $$
    with expired as (
        update grns.questions q set state = 'expired' where q.task_id = $1 and q.step = $2 and q.state = 'open' returning q.*
    )
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, payload)
    select t.version, gen_random_uuid(), t.workspace, t.id, 'evt.question.expired', t.attempt, t.trace_id, t.last_message_id,
        json_build_object('task_id', t.id, 'question_id', e.id, 'title', e.title)
    from expired e
    join grns.tasks t on t.id = e.task_id
$$;
