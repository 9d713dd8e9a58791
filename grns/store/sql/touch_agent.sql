-- Notes that a worker is alive. $1 agent_id
update grns.agents a set last_seen_at = now() where a.agent_id = $1 returning a.agent_id
