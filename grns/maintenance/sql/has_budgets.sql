-- Whether there is a budget, or a pause of one that was deleted. No row: another scheduler looks at the budgets now. The lock is kept
-- to the end of the transaction; a statement that follows sees all that the one before has done.
select exists (select from grns.budgets) or exists (select from grns.pauses p where p.budget is not null) as has_budgets
where pg_try_advisory_xact_lock(hashtext('grns.budgets'))
