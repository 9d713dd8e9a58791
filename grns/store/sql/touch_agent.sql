-- Notes that a worker is alive. $1 agent_id, $2 for how many seconds it has had room and taken nothing,
-- $3 how many tasks it runs
update grns.agents a
set last_seen_at = now(), worked_at = now() - $2::double precision * interval '1 second', running = $3
where a.agent_id = $1
returning a.agent_id
