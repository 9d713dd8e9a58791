-- Makes the role that tenants become and gives it its rights, as far as that is missing: see the function.
select grns.isolate_workspaces() as has_role
