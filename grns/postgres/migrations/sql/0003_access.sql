-- Who may do what: workspaces, API keys, and a role that the database confines to one workspace.

-- Before the policies below refer to it: lists walk through names in one order, whatever the database's own is.
alter table grns.agents
    alter column workspace type text collate "C",
    alter column agent_type type text collate "C";

-- ---------------------------------------------------------------- workspaces, keys
-- Those that somebody has made. Work may be submitted into any other one, too.
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
    created_at    timestamptz not null default now(),
    created_by    text,
    expires_at    timestamptz,                    -- null: never
    revoked_at    timestamptz,
    revoked_by    text,
    last_used_at  timestamptz,                    -- written once a minute at most
    constraint api_keys_shape check (octet_length(secret_sha256) = 32 and cardinality(scopes) > 0
        and (cardinality(pools) > 0 and array_position(pools, null) is null) is not false)
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

-- ---------------------------------------------------------------- tenants
-- A tenant is a transaction that has become `grns_tenant` and says its workspace in `grns.workspace`. Here is what it
-- may do, with rows that bear that workspace. Every table with a column `workspace` stands here, null: nothing. Who
-- adds such a table adds a row, and calls `isolate_workspaces` again.
create table grns.tenant_rights (
    relation text primary key,
    rights   text
);
insert into grns.tenant_rights (relation, rights) values
    ('tasks', 'select, insert, update'),
    ('events', 'select, insert'),
    ('dead_letters', 'select, update'),
    ('replays', 'select'),
    ('agents', 'select'),
    ('task_counts', 'select'),
    ('deleted_tasks', null),
    ('task_minutes', 'select'),
    ('issues', 'select, update'),
    ('issue_hours', 'select'),
    ('issue_facets', 'select'),
    ('workspaces', 'select'),
    ('api_keys', 'select (id, workspace, name, scopes, pools, created_at, created_by, expires_at, revoked_at, revoked_by,'
                 ' last_used_at), insert, update (revoked_at, revoked_by)');

-- Whether whoever is connected may become a tenant: before 16 each member of a role may.
create function grns.may_be_tenant() returns boolean language sql stable as $$
    select exists (
        select from pg_roles r
        where r.rolname = 'grns_tenant' and pg_has_role(session_user, r.oid,
            case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end))
$$;

-- Makes the role, if it may, and gives it its rights. Its policies are restrictive, and another one lets everybody see
-- everything: row-level security takes nothing from those who have been granted the tables, and the owner, whom it
-- leaves alone, does not pay for it. Safe to repeat: it does what is missing. False where there is no role.
create function grns.isolate_workspaces() returns boolean language plpgsql as $$
declare
    one record;
begin
    if not exists (select from pg_roles where rolname = 'grns_tenant') then
        begin
            create role grns_tenant nologin;
        exception
            when insufficient_privilege then
                return false;
            when duplicate_object or unique_violation then
                null;  -- roles are the whole server's, and another database was faster
        end;
    end if;
    if not grns.may_be_tenant() then
        begin
            grant grns_tenant to current_user;
        exception
            when insufficient_privilege or unique_violation then
                null;
        end;
    end if;
    grant usage on schema grns to grns_tenant;
    grant usage on sequence grns.events_seq to grns_tenant;
    for one in
        select c.oid::regclass as relation, r.rights,
            exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'tenant') as is_confined
        from grns.tenant_rights r
        join pg_class c on c.oid = to_regclass(format('grns.%I', r.relation))
        order by c.oid  -- the tasks before the log, as every statement locks them
    loop
        if not one.is_confined then
            execute format('create policy everybody on %s using (true)', one.relation);
            execute format($policy$
                create policy tenant on %s as restrictive to grns_tenant
                    using (workspace = current_setting('grns.workspace', true))
                $policy$, one.relation);
            execute format('alter table %s enable row level security', one.relation);
        end if;
        if one.rights is not null then
            execute format('grant %s on %s to grns_tenant', one.rights, one.relation);
        end if;
    end loop;
    for one in
        select p.oid::regprocedure as name from pg_proc p
        where p.pronamespace = 'grns'::regnamespace and p.prosecdef
    loop
        execute format('grant execute on function %s to grns_tenant', one.name);
    end loop;
    return true;
end
$$;
select grns.isolate_workspaces();
