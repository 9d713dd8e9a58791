-- Reads what the log has of a workspace in one stretch of numbers, the latest first, until so many bytes are read.
-- `found` is how many there were, whether they are here or not.
-- $1 workspace, $2 behind this number, $3 up to this number, $4 patterns of kinds, $5 task, null for all, $6 rows at most,
-- $7 bytes: one row more than fits
select f.seq, f.version, f.message_id, f.workspace, f.task_id, f.kind, f.attempt, f.trace_id, f.causation_id, f.actor,
    f.payload, f.created_at, f.was, f.found
from (
    select e.*, count(*) over () as found,
        sum(octet_length(e.payload)) over (order by e.seq desc) - octet_length(e.payload) as bytes_before
    from (
        select l.seq, l.version, l.message_id, l.workspace, l.task_id, l.kind, l.attempt, l.trace_id, l.causation_id,
            l.actor, l.payload::text as payload, l.created_at, l.was::text as was
        from grns.events l
        where l.seq > $2 and l.seq <= $3 and l.workspace = $1 and l.kind ~ any($4::text[])
            and ($5::text is null or l.task_id = $5)
        order by l.seq desc
        limit $6
    ) as e
) as f
where f.bytes_before < $7::bigint
order by f.seq desc
