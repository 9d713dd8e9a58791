-- Reads under which keys tasks wait for room: one look at the index for each.
with recursive lines as (
    (
        select t.workspace, t.limits from grns.tasks t where t.waits_for = 'limit' order by t.workspace, t.limits limit 1
    )
    union all
    select n.workspace, n.limits
    from lines l
    cross join lateral (
        select t.workspace, t.limits from grns.tasks t
        where t.waits_for = 'limit' and (t.workspace, t.limits) > (l.workspace, l.limits)
        order by t.workspace, t.limits
        limit 1
    ) as n
)
select l.workspace, l.limits from lines l
