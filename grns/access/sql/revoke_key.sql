-- Ends a key for good, and says whether it was this that ended it; no row where there is none.
-- $1 id, $2 workspace, null for any, $3 who asks
with revoked as (
    update grns.api_keys k set revoked_at = now(), revoked_by = $3
    where k.id = $1 and ($2::text is null or k.workspace = $2::text) and k.revoked_at is null
    returning k.id, k.workspace, k.name
)
select r.id, r.workspace, r.name, true as is_new from revoked r
union all
select k.id, k.workspace, k.name, false
from grns.api_keys k
where k.id = $1 and ($2::text is null or k.workspace = $2::text) and not exists (select from revoked)
