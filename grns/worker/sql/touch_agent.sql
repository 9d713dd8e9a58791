-- Notes that a worker is alive. $1 agent_id, $2 for how many seconds it has had room and taken nothing,
-- $3 how many tasks it runs, $4 workspace that it works in (null: whichever)
update grns.agents a
set last_seen_at = now(), worked_at = now() - $2::double precision * interval '1 second', running = $3
where a.agent_id = $1 and ($4::text is null or a.workspace = $4::text)
returning a.agent_id
