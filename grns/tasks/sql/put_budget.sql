-- Creates a budget, or replaces the one of its name. What was allowed beyond it in this period stays, unless it is another pool's or
-- period's now. Without a row the workspace has as many as it may have.
-- $1 workspace, $2 name, $3 pool ('' is all of them), $4 period, $5 US dollars, $6 tokens, $7 action, $8 who asks, $9 how many budgets a
-- workspace may have
insert into grns.budgets as b (workspace, name, agent_type, period, max_cost, max_tokens, action, updated_by)
select $1, $2, $3, $4, $5::text::numeric, $6, $7, $8
where exists (select from grns.budgets b where b.workspace = $1 and b.name = $2)
    or (select count(*) from grns.budgets b where b.workspace = $1) < $9
on conflict (workspace, name) do update
set agent_type = excluded.agent_type, period = excluded.period, max_cost = excluded.max_cost, max_tokens = excluded.max_tokens,
    action = excluded.action, looked_at = null, updated_at = now(), updated_by = excluded.updated_by,
    begins_on = case when (b.agent_type, b.period) = (excluded.agent_type, excluded.period) then b.begins_on end,
    -- with another action, the event that it is used up is written again
    exceeded_since = case when b.action = excluded.action then b.exceeded_since end
returning b.name
