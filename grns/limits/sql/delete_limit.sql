-- Deletes a limit, for all pools. $1 workspace, $2 name
with gone as (
    delete from grns.limits l where l.workspace = $1 and l.name = $2 returning l.workspace, l.name
),
pools as (
    delete from grns.limited_pools p using gone g where p.workspace = g.workspace and p.name = g.name
)
select g.name from gone g
