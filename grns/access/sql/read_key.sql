-- Reads a key, without its digest. $1 id, $2 workspace, null for any
select k.id, k.workspace, k.name, k.scopes, k.pools, k.agents, k.created_at, k.created_by, k.expires_at, k.revoked_at, k.revoked_by,
    k.last_used_at, grns.key_state(k.expires_at, k.revoked_at) as state
from grns.api_keys k
where k.id = $1 and ($2::text is null or k.workspace = $2::text)
