-- Forgets issues that were not seen for long and have no task left, with their hours and facets.
-- $1 issues at most, $2 retention in seconds
with doomed as (
    select i.workspace, i.fingerprint
    from grns.issues i
    where i.open_count <= 0 and i.last_seen < now() - $2::double precision * interval '1 second'
    order by i.last_seen
    limit $1
    for update skip locked
)
delete from grns.issues i
using doomed d
where i.workspace = d.workspace and i.fingerprint = d.fingerprint
returning i.fingerprint
