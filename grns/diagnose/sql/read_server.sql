-- Reads what of the server durability and cleaning up hang on, and which of its transactions is open for longest.
select current_setting('server_version') as version, current_setting('server_version_num')::integer as version_number,
    pg_is_in_recovery() as is_standby, current_setting('fsync')::boolean as fsync,
    current_setting('full_page_writes')::boolean as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('default_transaction_isolation') as isolation,
    (select count(*) from pg_stat_activity a where a.backend_type = 'client backend')::integer as connections,
    current_setting('max_connections')::integer as max_connections,
    (pg_size_bytes(current_setting('max_wal_size')) / 1048576)::integer as max_wal_megabytes,
    o.seconds as transaction_seconds, o.pid as transaction_pid, o.application_name as transaction_name,
    o.state as transaction_state
from (select true) as one
left join lateral (
    select extract(epoch from now() - a.xact_start)::double precision as seconds, a.pid, a.application_name, a.state
    from pg_stat_activity a
    where a.xact_start is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    order by a.xact_start
    limit 1
) as o on true
