-- Counts the keys of a workspace that are neither revoked nor expired. $1 workspace, $2 count no more than this
select count(*) as keys
from (
    select from grns.api_keys k
    where k.workspace = $1 and k.revoked_at is null and grns.key_state(k.expires_at, k.revoked_at) = 'valid'
    limit $2
) as live
