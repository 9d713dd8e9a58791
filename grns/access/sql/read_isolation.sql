-- Says whether the database can confine a transaction to one workspace: that `has_role`, that we `may_become` it,
-- that its own rights leave it `is_bound` and do not bind us (`is_free`), that it `is_ready`, and which tables it may
-- use that do not tell workspaces apart (`open_to_all`). `who` is who is connected, as SQL writes that.
-- `has_bound_keys`: whether keys of single workspaces exist, which rely on it.
with tenant as (
    select r.oid, r.rolsuper or r.rolbypassrls as is_above_policies from pg_roles r where r.rolname = 'grns_tenant'
),
tables as (
    select c.relname::text as name, c.oid, c.relowner,
        c.relrowsecurity and exists (select from pg_policy p
            where p.polrelid = c.oid and p.polname = 'tenant' and t.oid = any (p.polroles)) as is_confined,
        has_table_privilege(t.oid, c.oid, 'select, insert, update, delete, truncate')
            or has_any_column_privilege(t.oid, c.oid, 'select, insert, update') as is_usable
    from tenant t, pg_class c
    where c.relnamespace = 'grns'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
)
select quote_ident(session_user::text) as who,
    exists (select from tenant) as has_role,
    grns.may_be_tenant() as may_become,
    not exists (select from tenant t
        where t.is_above_policies or exists (select from tables c where pg_has_role(t.oid, c.relowner, 'usage'))
    ) as is_bound,
    not exists (select from tenant t
        where pg_has_role(t.oid, 'usage') and row_security_active('grns.tasks'::regclass)) as is_free,
    not exists (select from grns.tenant_rights r
        where to_regclass(format('grns.%I', r.relation)) is not null
            and not exists (select from tables c
                where c.name = r.relation and c.is_confined and (c.is_usable or r.rights is null))) as is_ready,
    coalesce((select array_agg(c.name order by c.name) from tables c where c.is_usable and not c.is_confined), '{}')
        as open_to_all,
    exists (select from grns.api_keys k where k.workspace is not null and k.revoked_at is null) as has_bound_keys
