-- Makes a webhook with its secret, and tells the log: that event is the first that it may be told of. No row where the
-- workspace has as many as it may. $1 id, $2 workspace, $3 URL, $4 kinds, $5 the same as a regular expression,
-- $6 description, $7 secret, $8 who asks, $9 webhooks at most
with logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, $2::text, 'evt.webhook.created', replace(gen_random_uuid()::text, '-', ''), $8::text,
        json_build_object('webhook_id', $1::text, 'kinds', $4::text[], 'is_enabled', true, 'actor', $8::text)
    where $9::integer > (
        select count(*) from grns.webhooks w where w.workspace = $2::text and w.deleted_at is null
    )
    returning seq
),
made as (
    insert into grns.webhooks (id, workspace, url, kinds, pattern, description, since_seq, created_by, changed_by)
    select $1::text, $2::text, $3::text, $4::text[], $5::text, $6::text, l.seq, $8::text, $8::text
    from logged l
    returning id, workspace
),
signed as (
    insert into grns.webhook_secrets (webhook_id, workspace, secret)
    select m.id, m.workspace, $7::bytea from made m
)
select m.id from made m
