-- Keeps a new key, of its secret the digest; no row where there is no such workspace.
-- $1 id, $2 workspace, null for all, $3 name, $4 sha256 of the secret, $5 scopes, $6 who asks,
-- $7 after how many seconds it expires, null for never, $8 agent types that it may work for, null for all,
-- $9 agents that it may be, null for all
insert into grns.api_keys as k (id, workspace, name, secret_sha256, scopes, created_by, expires_at, pools, agents)
select $1::text, $2::text, $3::text, $4::bytea, $5::text[], $6::text,
    now() + $7::double precision * interval '1 second', $8::text[], $9::text[]
where $2::text is null or exists (select from grns.workspaces w where w.workspace = $2::text)
returning k.id, k.workspace, k.name, k.scopes, k.pools, k.agents, k.created_at, k.created_by, k.expires_at, k.revoked_at, k.revoked_by,
    k.last_used_at, grns.key_state(k.expires_at, k.revoked_at) as state
