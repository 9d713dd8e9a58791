-- Takes a signal for a step: see the function. $1 id, $2 attempt, $3 lease_id, $4 workspace, $5 step, $6 name of the signal,
-- $7 digest of the question that it answers, or null
select grns.take_signal($1, $2, $3, $4, $5, $6, $7)::text as value
