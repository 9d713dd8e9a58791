-- Forgets workers that have not been seen for long. $1 retention in seconds
delete from grns.agents a where a.last_seen_at < now() - $1::double precision * interval '1 second'
returning a.agent_id
