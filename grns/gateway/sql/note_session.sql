-- Keeps the key of the session that was begun for an agent. $1 workspace, $2 name, $3 key
update grns.agents set session_key = $3 where workspace = $1 and name = $2
