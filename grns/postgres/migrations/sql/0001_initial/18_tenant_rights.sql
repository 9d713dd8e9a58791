-- Rights of tenants.
insert into grns.tenant_rights (relation, rights) values
    ('tasks', 'select, insert, update'),
    ('events', 'select, insert'),
    ('needs', 'select, insert'),
    ('waits', 'select, insert'),
    ('workflows', 'select, insert, update (paused_at, paused_by, pause_reason, cancel_requested_at, stopped_at, version)'),
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
                 ' last_used_at), insert, update (revoked_at, revoked_by)'),
    ('saved_filters', 'select, insert, update, delete'),
    ('operations', 'select, insert, update'),
    ('unique_keys', 'select, insert, update'),
    ('task_pauses', 'select, insert, update, delete'),
    ('pauses', 'select, insert, update, delete'),
    ('schedules', 'select, insert, update, delete'),
    ('schedule_runs', 'select, insert, delete'),
    ('limits', 'select, insert, update, delete'),
    ('limited_pools', 'select, insert, update, delete'),
    ('limit_tokens', null),
    ('webhooks', 'select, insert, update'),
    ('webhook_secrets', 'select (id, webhook_id, workspace, created_at, expires_at), insert, update (expires_at),'
                        ' delete'),
    ('webhook_deliveries', 'select, insert, update');
select grns.isolate_workspaces();
