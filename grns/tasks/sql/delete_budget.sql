-- Deletes a budget, and has others looked at soon: they may pause the same pools. $1 workspace, $2 name
with gone as (
    delete from grns.budgets b where b.workspace = $1 and b.name = $2 returning b.workspace, b.name
),
due as (
    update grns.budgets b set looked_at = null from gone g where b.workspace = g.workspace and b.name <> g.name
)
select g.name from gone g
