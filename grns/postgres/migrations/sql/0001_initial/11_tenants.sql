-- Tenants.
-- A tenant is a transaction that has become `grns_tenant` and says its workspace in `grns.workspace`. Here is what it
-- may do, with rows that bear that workspace. Every table with a column `workspace` stands here, null: nothing. Who
-- adds such a table adds a row, and calls `isolate_workspaces` again.
create table grns.tenant_rights (
    relation text primary key,
    rights   text
);
-- Whether the session's user may become a tenant: before 16 each member of a role may.
create function grns.may_be_tenant() returns boolean language sql stable as $$
    select exists (
        select from pg_roles r
        where r.rolname = 'grns_tenant' and pg_has_role(session_user, r.oid,
            case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end))
$$;

-- Makes the role, if it may, and gives it its rights. Its policies are restrictive, and another one lets every role see
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
