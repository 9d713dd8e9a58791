-- Confines the rest of a transaction to one workspace; no row where the database has no role for that.
-- Both are set for this transaction alone: whatever its end, the connection is whose it was. $1 workspace
select set_config('grns.workspace', $1, true) as workspace, set_config('role', r.rolname::text, true) as role
from pg_roles r
where r.rolname = 'grns_tenant'
