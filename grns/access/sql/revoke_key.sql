-- Ends a key for good; no row if it does not exist or has ended before. $1 id, $2 workspace, null for any, $3 who asks
update grns.api_keys k set revoked_at = now(), revoked_by = $3
where k.id = $1 and ($2::text is null or k.workspace = $2::text) and k.revoked_at is null
returning k.id
