-- Lets a task wait whose handler asks for it: see the function. $1 id, $2 attempt, $3 lease_id, $4 workspace, $5 event id,
-- $6 causation_id, $7 name of the step, $8 seconds: for these, or at most for these until $10 of the
-- tasks $9 have ended, or until the signal $11 comes, which answers the question $12
select grns.suspend_task($1, $2, $3, $4, $5, $6, $7, $8::double precision, $9::text[], $10::integer, $11, $12::text::jsonb) as verdict
