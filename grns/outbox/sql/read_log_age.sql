-- Finds by bisection a number of the log such that the rows from there on are younger than a moment. One
-- statement, for each step would cost a round trip.
-- $1 the moment or, where null, when the row $2 or the one before it was written (now, where there is none),
-- $3 so many seconds before that, $4 the highest number that is looked at
with recursive wanted as (
    select coalesce(
            $1::timestamptz,
            (select e.created_at from grns.events e where e.seq <= $2::bigint order by e.seq desc limit 1),
            now()
        ) - $3::double precision * interval '1 second' as moment
),
hunt (low, top) as (
    select 0::bigint, $4::bigint + 1
    union all
    select coalesce(e.seq + 1, h.low), case when e.seq is null then h.middle else h.top end
    from (select h.low, h.top, (h.low + h.top) / 2 as middle from hunt h where h.low < h.top) as h
    left join lateral (
        select e.seq, e.created_at
        from grns.events e
        where e.seq >= h.middle
        order by e.seq
        limit 1
    ) as e on e.created_at < (select w.moment from wanted w)
)
select h.low as seq
from hunt h
where h.low >= h.top
