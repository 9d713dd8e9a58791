-- Deletes a budget. $1 workspace, $2 name
delete from grns.budgets b where b.workspace = $1 and b.name = $2 returning b.name
