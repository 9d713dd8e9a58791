-- How many tasks are dead or failed of some issues now, up to where the log is counted. $1 workspace, $2 fingerprints
select coalesce(sum(i.open_count), 0)::bigint as number
from grns.issues i
where i.workspace = $1 and i.fingerprint = any ($2::text[])
