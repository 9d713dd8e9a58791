-- Has an event of its own sent to a webhook, whatever kinds it is told of, and returns that delivery's number. No row
-- where there is no such webhook, a null where it is disabled. $1 workspace, $2 id, $3 who asks
with known as (
    select w.id, w.workspace, w.kinds, w.is_enabled
    from grns.webhooks w
    where w.workspace = $1 and w.id = $2 and w.deleted_at is null
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, k.workspace, 'evt.webhook.pinged', replace(gen_random_uuid()::text, '-', ''), $3::text,
        json_build_object('webhook_id', k.id, 'kinds', k.kinds, 'is_enabled', true, 'actor', $3::text)
    from known k
    where k.is_enabled
    returning seq, workspace, message_id, kind
),
made as (
    insert into grns.webhook_deliveries (webhook_id, seq, workspace, message_id, kind)
    select k.id, l.seq, l.workspace, l.message_id, l.kind
    from known k
    cross join logged l
    returning seq
)
select k.id, m.seq from known k left join made m on true
