-- Notes that an agent could not be woken, and says for how long it is left alone. A session is counted when it is asked for.
-- $1 workspace, $2 name, $3 pause in seconds, $4 longest pause in seconds, $5 whether it was a session
update grns.agents g
set nudge_failures = g.nudge_failures + (not $5::boolean)::integer
where g.workspace = $1 and g.name = $2
returning least($3::double precision * 2 ^ least(g.nudge_failures, 10), $4::double precision) as pause_seconds
