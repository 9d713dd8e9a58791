-- Reads the webhooks of a workspace, the latest first, and of their secrets only until when they are good.
-- $1 workspace, $2 id, null for all, $3 behind which id, null for the latest, $4 how many
select w.id, w.workspace, w.url, w.kinds, w.description, w.is_enabled, w.disabled_reason, w.failing_since,
    w.last_delivered_at, w.version, w.created_at, w.created_by, w.changed_at, w.changed_by,
    (select s.created_at from grns.webhook_secrets s where s.webhook_id = w.id and s.expires_at is null)
        as secret_since,
    (select max(s.expires_at) from grns.webhook_secrets s where s.webhook_id = w.id and s.expires_at > now())
        as old_secret_until
from grns.webhooks w
where w.workspace = $1 and w.deleted_at is null and ($2::text is null or w.id = $2::text)
    and ($3::text is null or w.id < $3::text)
order by w.id desc
limit $4
