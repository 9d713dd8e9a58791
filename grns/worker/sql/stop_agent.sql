-- Notes that a worker has ended in order. $1 agent_id
update grns.agents a set last_seen_at = now(), stopped_at = now() where a.agent_id = $1 returning a.agent_id
