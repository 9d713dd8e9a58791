-- Reads which of the numbers that were missing became visible, and which lie beyond the highest number seen, as spans;
-- with the lower bound of the snapshot that says so (one row with nulls where there is nothing).
-- $1 and $2 bounds of the missing numbers, $3 highest number seen, $4 numbers at most, of each
with late as (
    select e.seq
    from unnest($1::bigint[], $2::bigint[]) as m (lower_seq, upper_seq)
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.seq from grns.events e
        where e.seq >= m.lower_seq and e.seq < m.upper_seq
        order by e.seq
        limit $4
    ) as e
    order by e.seq
    limit $4
),
fresh as (
    select e.seq from grns.events e where e.seq > $3 order by e.seq limit $4
),
-- What follows each other is equally far ahead of its place.
placed as (
    select n.seq, n.seq - row_number() over (order by n.seq) as ahead
    from (select l.seq from late l union all select f.seq from fresh f) as n
)
select pg_snapshot_xmin(s.snapshot)::text::bigint as snapshot_xmin, r.lower_seq, r.upper_seq
from (select pg_current_snapshot() as snapshot) as s
left join (
    select min(p.seq) as lower_seq, max(p.seq) + 1 as upper_seq from placed p group by p.ahead
) as r on true
order by r.lower_seq
