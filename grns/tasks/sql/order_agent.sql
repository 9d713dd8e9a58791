-- Tells an agent to drain or to stop, or takes that back. No row: there is no such agent, or it has begun another life. Earlier lives
-- are told to end, too; an order to stop stays one, and what they are told is not taken back: another one works in their place.
-- $1 workspace, $2 name, $3 what (null: to work), $4 who says so, $5 why, $6 to which life (null: whichever)
with told as (
    update grns.agents g
    set ordered = $3::text, ordered_at = case when $3::text is not null then clock_timestamp() end,
        ordered_by = case when $3::text is not null then $4::text end, order_reason = case when $3::text is not null then $5::text end
    where g.workspace = $1 and g.name = $2 and ($6::text is null or g.agent_id = $6::text)
    returning g.agent_type, g.agent_id
),
earlier as (
    update grns.earlier_lives e
    set ordered = $3::text, ordered_at = clock_timestamp()
    from told
    where e.workspace = $1 and e.name = $2 and coalesce(e.ordered, 'drain') = 'drain' and e.ordered is distinct from $3::text
        and $3::text is not null
)
select t.agent_type, t.agent_id from told t
