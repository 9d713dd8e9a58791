-- Locks an agent until the end of the transaction, and returns how many tasks more it may have; null: it is not registered.
-- $1 workspace, $2 name, $3 agent_id
select grns.hold_agent($1, $2, $3) as room
