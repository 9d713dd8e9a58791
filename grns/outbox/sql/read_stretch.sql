-- Reads one page of the log, and of it only what a replay is about. The page's last number comes with each row (one
-- row with nulls where there is nothing of it): what is asked for may stand far apart, and to go on until enough is
-- found could take longer than a client waits. Where what is wanted is large, the page ends before its
-- last row: it would take as long to send.
-- $1 after this number, $2 up to this number, $3 rows at most, $4 since, $5 until, $6 workspace, each null for all,
-- $7 patterns of kinds, $8 bytes of payload at most, and the rest of one row more
with page as (
    select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id, e.causation_id,
        e.payload, e.created_at
    from grns.events e
    where e.seq > $1 and e.seq <= $2
    order by e.seq
    limit $3
),
wanted as (
    select p.*, sum(octet_length(p.payload::text)) over (order by p.seq) - octet_length(p.payload::text) as bytes_before
    from page p
    where ($4::timestamptz is null or p.created_at >= $4) and ($5::timestamptz is null or p.created_at < $5)
        and ($6::text is null or p.workspace = $6) and p.kind ~ any($7::text[])
)
select coalesce(
        (select min(c.seq) - 1 from wanted c where c.bytes_before >= $8::bigint), (select max(p.seq) from page p)
    ) as last_seq,
    w.seq, w.version, w.message_id::text as message_id, w.workspace, w.task_id, w.kind, w.route, w.trace_id,
    w.causation_id::text as causation_id, w.payload::text as payload, w.created_at
from (select) as once
left join wanted w on w.bytes_before < $8
order by w.seq
