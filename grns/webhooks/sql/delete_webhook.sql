-- Deletes a webhook, and tells the log. Its URL and its secrets are gone at once, its deliveries go with the janitor.
-- $1 workspace, $2 id, $3 who asks
with known as (
    select w.id, w.workspace, w.kinds
    from grns.webhooks w
    where w.workspace = $1 and w.id = $2 and w.deleted_at is null
    for no key update
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, k.workspace, 'evt.webhook.deleted', replace(gen_random_uuid()::text, '-', ''), $3::text,
        json_build_object('webhook_id', k.id, 'kinds', k.kinds, 'is_enabled', false, 'actor', $3::text)
    from known k
),
forgotten as (
    delete from grns.webhook_secrets s using known k where s.webhook_id = k.id
)
update grns.webhooks w
set deleted_at = now(), is_enabled = false, url = '', changed_at = now(), changed_by = $3
from known k
where w.id = k.id
returning w.id
