-- Reads what happened to one task, in order, until so many bytes are read. `found` is how many there were, whether they
-- are here or not. The numbers are found first: in their order alone, all of the log would be looked at.
-- $1 id, $2 workspace, $3 behind this number, $4 rows at most, $5 bytes: one row more than fits
with wanted as materialized (
    select e.seq from grns.events e where e.task_id = $1 and e.workspace = $2 and e.seq > $3
)
select f.seq, f.version, f.message_id, f.workspace, f.task_id, f.kind, f.attempt, f.trace_id, f.causation_id, f.actor,
    f.payload, f.created_at, f.was, f.found
from (
    select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.attempt, e.trace_id, e.causation_id, e.actor,
        e.payload::text as payload, e.created_at, e.was::text as was, count(*) over () as found,
        sum(octet_length(e.payload::text)) over (order by e.seq) - octet_length(e.payload::text) as bytes_before
    from (select w.seq from wanted w order by w.seq limit $4) as n
    join grns.events e on e.seq = n.seq
) as f
where f.bytes_before < $5::bigint
order by f.seq
