-- Reads one issue, with how often it was seen in the last 24 hours, and the values of its facets, most frequent first.
-- $1 workspace, $2 fingerprint
select i.fingerprint, i.error_class, i.message, i.sample_task_id, i.first_seen, i.last_seen, i.total, i.open_count,
    i.state, i.state_by, i.state_at, i.note, i.owner, i.snoozed_until, i.version,
    grns.issue_trend(i.workspace, i.fingerprint, 24) as trend,
    (
        select coalesce(json_agg(json_build_array(f.facet, f.value, f.count) order by f.facet, f.count desc, f.value), '[]')
        from grns.issue_facets f
        where f.workspace = i.workspace and f.fingerprint = i.fingerprint
    )::text as facets
from grns.issues i
where i.workspace = $1 and i.fingerprint = $2
