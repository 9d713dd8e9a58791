-- Gives a webhook a new secret, and tells the log. The one before is good for a while, those before that one are not.
-- No row where there is no such webhook, or another request does the same. $1 workspace, $2 id, $3 secret,
-- $4 for how many seconds the one before is good, $5 who asks
with known as (
    select w.id, w.workspace, w.kinds, w.is_enabled
    from grns.webhooks w
    where w.workspace = $1 and w.id = $2 and w.deleted_at is null
    for no key update
),
forgotten as (
    delete from grns.webhook_secrets s using known k where s.webhook_id = k.id and s.expires_at is not null
),
aged as (
    update grns.webhook_secrets s set expires_at = now() + $4::double precision * interval '1 second'
    from known k
    where s.webhook_id = k.id and s.expires_at is null
    returning s.id
),
made as (
    insert into grns.webhook_secrets (webhook_id, workspace, secret)
    select k.id, k.workspace, $3::bytea
    from known k
    where (select count(*) from aged) >= 0  -- not before: there is one latest at a time
    on conflict do nothing
    returning webhook_id
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, k.workspace, 'evt.webhook.changed', replace(gen_random_uuid()::text, '-', ''), $5::text,
        json_build_object('webhook_id', k.id, 'kinds', k.kinds, 'is_enabled', k.is_enabled,
            'fields', json_build_array('secret'), 'actor', $5::text)
    from known k
    join made m on m.webhook_id = k.id
)
select m.webhook_id from made m
