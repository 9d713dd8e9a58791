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
    where w.place = 's' || s.workspace || '/' || s.name and s.payload::text = w.was
    returning s.name
),
operations as (
    update grns.operations o set patch = w.becomes::jsonb
    from wanted w
    where w.place = 'o' || lpad(o.id::text, 20, '0') and o.patch::text = w.was
    returning o.id
),
kept_webhooks as (
    select s.id, w.becomes
    from wanted w
    join grns.webhook_secrets s on w.place = 'w' || lpad(s.id::text, 20, '0') and s.secret = convert_to(w.was, 'UTF8')
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
    + (select count(*) from webhooks) as changed
