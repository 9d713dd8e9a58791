-- Lists issues, what was seen last first, with how often each was seen in the last 24 hours. Each state is read from its
-- own place in the index, and of each no more than is wanted of all.
-- $1 workspace, $2 states, $3 and $4 behind which time and fingerprint to go on (null: from the beginning), $5 how many
with listed as (
    select i.*
    from unnest($2::text[]) as s (state)
    cross join lateral (
        select o.* from grns.issues o
        where o.workspace = $1 and o.state = s.state
            and (o.last_seen, o.fingerprint) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::text, ''))
        order by o.last_seen desc, o.fingerprint desc
        limit $5
    ) as i
    order by i.last_seen desc, i.fingerprint desc
    limit $5
)
select l.fingerprint, l.error_class, l.message, l.sample_task_id, l.first_seen, l.last_seen, l.total, l.open_count,
    l.state, l.state_by, l.state_at, l.note, l.owner, l.snoozed_until, l.version,
    grns.issue_trend(l.workspace, l.fingerprint, 24) as trend
from listed l
order by l.last_seen desc, l.fingerprint desc
