-- Tells an agent to drain or to stop, or takes that back. No row: there is no such agent, or it has begun another life.
-- $1 workspace, $2 name, $3 what (null: to work), $4 who says so, $5 why, $6 to which life (null: whichever)
update grns.agents g
set ordered = $3::text, ordered_at = case when $3::text is not null then clock_timestamp() end,
    ordered_by = case when $3::text is not null then $4::text end, order_reason = case when $3::text is not null then $5::text end
where g.workspace = $1 and g.name = $2 and ($6::text is null or g.agent_id = $6::text)
returning g.agent_type, g.agent_id
