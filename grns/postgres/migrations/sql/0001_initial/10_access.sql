-- Workspaces, keys.
-- Workspaces that were created. Tasks may be submitted into any other one, too.
create table grns.workspaces (
    workspace  text collate "C" primary key,
    created_at timestamptz not null default now(),
    created_by text,                              -- null: grns itself
    constraint workspaces_name check (workspace ~ '^[A-Za-z0-9_-]{1,64}$' and workspace not in ('_unknown', '_installation'))
);
insert into grns.workspaces (workspace) values ('default');

create table grns.api_keys (
    id            text collate "C" primary key,   -- sorts by time; it may be shown, the secret is nowhere
    workspace     text collate "C" references grns.workspaces,  -- null: of all
    name          text not null,
    secret_sha256 bytea not null,
    scopes        text[] not null,
    pools         text[],                         -- agent types that it may work for; null: all
    agents        text[],                         -- agents that it may be; null: all
    created_at    timestamptz not null default now(),
    created_by    text,
    expires_at    timestamptz,                    -- null: never
    revoked_at    timestamptz,
    revoked_by    text,
    last_used_at  timestamptz,                    -- written once a minute at most
    constraint api_keys_shape check (octet_length(secret_sha256) = 32 and cardinality(scopes) > 0
        and (cardinality(pools) > 0 and array_position(pools, null) is null) is not false
        and (cardinality(agents) > 0 and array_position(agents, null) is null) is not false)
) with (fillfactor = 50);
create index api_keys_workspace on grns.api_keys (workspace, id);
create index api_keys_live on grns.api_keys (workspace) where revoked_at is null;

create function grns.key_state(expires_at timestamptz, revoked_at timestamptz) returns text language sql stable as $$
    select case when revoked_at is not null then 'revoked' when expires_at <= now() then 'expired' else 'valid' end
$$;

-- What claim tokens are signed with: 244 random bits. The latest signs, the one before it still verifies. No tenant may
-- read it: it has no row in `tenant_rights`.
create table grns.token_keys (
    id         integer generated always as identity primary key,
    secret     bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    created_at timestamptz not null default now()
);
insert into grns.token_keys default values;

-- Sessions of the dashboard that were ended before their time, until it comes. No tenant may read it.
create table grns.ended_sessions (
    nonce      text primary key,
    expires_at timestamptz not null
);
