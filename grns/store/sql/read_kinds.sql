-- Reads one page of the log, and of it some kinds only: for replaying what a stream has lost. The page's last number
-- comes with each row (one row with nulls where there is nothing of them): those of a kind may stand far apart, and
-- to go on until enough are found could take longer than anybody waits for an answer.
-- $1 after this number, $2 up to this number, $3 how the kinds begin: evt., dlq., cmd. $4 rows at most, of any kind
with page as (
    select e.seq, e.version, e.message_id, e.workspace, e.task_id, e.kind, e.route, e.trace_id, e.causation_id,
        e.payload, e.created_at
    from grns.events e
    where e.seq > $1 and e.seq <= $2
    order by e.seq
    limit $4
)
select (select max(p.seq) from page p) as last_seq,
    w.seq, w.version, w.message_id::text as message_id, w.workspace, w.task_id, w.kind, w.route, w.trace_id,
    w.causation_id::text as causation_id, w.payload::text as payload, w.created_at
from (select) as once
left join (select p.* from page p where left(p.kind, 4) = any($3::text[])) as w on true
order by w.seq
