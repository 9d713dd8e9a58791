-- Locks an agent, so that its claims follow one another: for a moment, also if the process that asks dies or is frozen. No row: it is
-- not registered. $1 workspace, $2 name
select g.name, set_config('idle_in_transaction_session_timeout', '5s', true)
from grns.agents g
where g.workspace = $1 and g.name = $2
for no key update
