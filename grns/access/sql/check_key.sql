-- Reads what the holder of a key may do, and what the key's secret is compared with. $1 id, $2 nonce of a session
-- of the dashboard, null without one
select k.workspace, k.scopes, k.pools, k.agents, k.secret_sha256, grns.key_state(k.expires_at, k.revoked_at) as state,
    coalesce(k.last_used_at < now() - interval '1 minute', true) as is_note_due,
    exists (select from grns.ended_sessions e where e.nonce = $2::text) as is_ended
from grns.api_keys k
where k.id = $1
