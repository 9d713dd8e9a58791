-- Changes a webhook, if it is unchanged since the client read it, and logs it. One that is enabled is told of that event
-- and of what comes behind it. $1 workspace, $2 id, $3 the version that was seen (null: whatever it is), $4 names of
-- what changes, $5 URL, $6 kinds, $7 the same as a regular expression, $8 description, $9 whether it is enabled,
-- $10 who asks
with known as (
    select w.id, w.workspace,
        case when 'kinds' = any($4::text[]) then $6::text[] else w.kinds end as kinds,
        case when 'is_enabled' = any($4::text[]) then $9::boolean else w.is_enabled end as is_enabled,
        'is_enabled' = any($4::text[]) and $9::boolean and not w.is_enabled as is_begun,
        'is_enabled' = any($4::text[]) or 'url' = any($4::text[]) as is_fresh
    from grns.webhooks w
    where w.workspace = $1 and w.id = $2 and w.deleted_at is null and ($3::integer is null or w.version = $3)
    for no key update
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, actor, payload)
    select 0, k.workspace, 'evt.webhook.changed', replace(gen_random_uuid()::text, '-', ''), $10::text,
        json_build_object('webhook_id', k.id, 'kinds', k.kinds, 'is_enabled', k.is_enabled, 'fields', $4::text[],
            'actor', $10::text)
    from known k
    returning seq
)
update grns.webhooks w
set url = case when 'url' = any($4::text[]) then $5::text else w.url end, kinds = k.kinds,
    pattern = case when 'kinds' = any($4::text[]) then $7::text else w.pattern end,
    description = case when 'description' = any($4::text[]) then $8::text else w.description end,
    is_enabled = k.is_enabled, disabled_reason = case when not k.is_fresh then w.disabled_reason end,
    since_seq = case when k.is_begun then l.seq else w.since_seq end,
    failing_since = case when not k.is_fresh then w.failing_since end,
    version = w.version + 1, changed_at = now(), changed_by = $10
from known k
cross join logged l
where w.id = k.id
returning w.id
