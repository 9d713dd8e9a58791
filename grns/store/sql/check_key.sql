-- Reads what somebody may do who shows a key, and what the key's secret is held against. $1 id
select k.workspace, k.scopes, k.pools, k.secret_sha256, grns.key_state(k.expires_at, k.revoked_at) as state,
    coalesce(k.last_used_at < now() - interval '1 minute', true) as is_note_due
from grns.api_keys k
where k.id = $1
