-- Replaces documents that are still as they were read; skips rows that others hold. $1 places as of `read_sealed`, $2 the
-- documents, $3 what replaces them.
with wanted as (
    select w.* from unnest($1::text[], $2::text[], $3::text[]) as w (place, was, becomes)
),
held as (
    select t.id, left(w.place, 1) as kind, w.becomes
    from wanted w
    join grns.tasks t on t.id = substr(w.place, 2)
    where w.place like 't%' and t.payload = w.was::jsonb or w.place like 'r%' and t.result = w.was::jsonb
    order by t.id
    for no key update of t skip locked
),
-- Of a task with both only one is replaced: the other is seen in the next pass.
tasks as (
    update grns.tasks t
    set payload = case h.kind when 't' then h.becomes::jsonb else t.payload end,
        result = case h.kind when 'r' then h.becomes::jsonb else t.result end
    from held h
    where t.id = h.id
    returning t.id
),
schedules as (
    update grns.schedules s set payload = w.becomes::jsonb
    from wanted w
    where w.place like 's%' and s.workspace = split_part(substr(w.place, 2), '/', 1)
        and s.name = substr(w.place, strpos(w.place, '/') + 1) and s.payload::text = w.was
    returning s.name
),
operations as (
    update grns.operations o set patch = w.becomes::jsonb
    from wanted w
    where o.id = case when w.place like 'o%' then substr(w.place, 2)::bigint end and o.patch::text = w.was
    returning o.id
),
kept_checkpoints as (
    select c.task_id, w.becomes
    from wanted w
    join grns.progress c on c.task_id = substr(w.place, 2)
    where w.place like 'c%' and c.checkpoint = w.was::jsonb
    order by c.task_id
    for no key update of c skip locked
),
checkpoints as (
    update grns.progress c set checkpoint = k.becomes::jsonb
    from kept_checkpoints k
    where c.task_id = k.task_id
    returning c.task_id
),
kept_steps as (
    select e.task_id, e.name, w.becomes
    from wanted w
    join grns.steps e on e.task_id = split_part(substr(w.place, 2), '/', 1) and e.name = substr(w.place, strpos(w.place, '/') + 1)
    where w.place like 'e%' and e.value = w.was::jsonb
    order by e.task_id, e.name
    for no key update of e skip locked
),
steps as (
    update grns.steps e set value = k.becomes::jsonb
    from kept_steps k
    where e.task_id = k.task_id and e.name = k.name
    returning e.name
),
kept_mail as (
    select m.seq, w.becomes
    from wanted w
    join grns.mail m on m.seq = case when w.place like 'm%' then substr(w.place, 2)::bigint end
    where m.payload::text = w.was
    order by m.seq
    for no key update of m skip locked
),
mail as (
    update grns.mail m set payload = k.becomes::json
    from kept_mail k
    where m.seq = k.seq
    returning m.seq
),
kept_webhooks as (
    select s.id, w.becomes
    from wanted w
    join grns.webhook_secrets s on s.id = case when w.place like 'w%' then substr(w.place, 2)::bigint end
    where s.secret = convert_to(w.was, 'UTF8')
    order by s.id
    for no key update of s skip locked
),
webhooks as (
    update grns.webhook_secrets s set secret = convert_to(k.becomes, 'UTF8')
    from kept_webhooks k
    where s.id = k.id
    returning s.id
)
select (select count(*) from tasks) + (select count(*) from schedules) + (select count(*) from operations)
    + (select count(*) from webhooks) + (select count(*) from checkpoints) + (select count(*) from steps)
    + (select count(*) from mail) as changed
