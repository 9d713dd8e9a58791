-- Disables webhooks for which more waits than may, and tells the log. Returns them. $1 how much may wait
with flooded as (
    select w.id
    from grns.webhooks w
    where w.is_enabled and exists (
        select from grns.webhook_deliveries d
        where d.webhook_id = w.id and d.due_at is not null
        order by d.due_at
        offset $1::integer
        limit 1
    )
    for no key update of w skip locked
),
disabled as (
    update grns.webhooks w
    set is_enabled = false, disabled_reason = 'backlog', changed_at = now(), changed_by = null, version = w.version + 1
    from flooded f
    where w.id = f.id
    returning w.id, w.workspace, w.kinds
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, payload)
    select 0, d.workspace, 'evt.webhook.changed', replace(gen_random_uuid()::text, '-', ''),
        json_build_object('webhook_id', d.id, 'kinds', d.kinds, 'is_enabled', false,
            'fields', json_build_array('is_enabled'), 'reason', 'backlog', 'actor', null)
    from disabled d
)
select d.id from disabled d
