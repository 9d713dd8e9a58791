-- Lists keys, the latest first: those of one workspace, or all there are. $1 workspace, null for all,
-- $2 behind which id, null for the latest, $3 how many
select k.id, k.workspace, k.name, k.scopes, k.pools, k.agents, k.created_at, k.created_by, k.expires_at, k.revoked_at, k.revoked_by,
    k.last_used_at, grns.key_state(k.expires_at, k.revoked_at) as state
from (
    (select a.id from grns.api_keys a
     where $1::text is null and a.id < coalesce($2::text, 'g')
     order by a.id desc limit $3::integer)
    union all
    (select o.id from grns.api_keys o
     where o.workspace = $1::text and o.id < coalesce($2::text, 'g')
     order by o.id desc limit $3::integer)
) as page
join grns.api_keys k on k.id = page.id
order by k.id desc
