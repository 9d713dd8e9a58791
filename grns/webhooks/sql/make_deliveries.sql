-- Looks through what the log has behind the cursor, notes for each event which webhooks are told of it, and moves the
-- cursor: all of it or nothing, and nothing while another sender does it. It goes no farther than the log is settled:
-- below that no number turns up any more. Where no webhook is told of anything that is older, that is passed over.
-- Answers with how far it is then, how far the log is settled, how many deliveries were made, and how old the latest
-- event that was looked at is; with nothing while another sender does it. $1 numbers of the log at most
with held as (
    select c.id, c.low from grns.webhook_cursor c where c.id = 1 for update skip locked
),
known as (
    select greatest((select r.low from grns.relay_cursor r), (select k.low from grns.count_cursor k), h.low) as settled,
        (select min(w.since_seq) from grns.webhooks w where w.is_enabled) as first
    from held h
),
bounds as (
    select h.id, k.settled, s.start, least(s.start + $1::integer, k.settled) as stop
    from held h
    cross join known k
    cross join lateral (
        select least(greatest(h.low, coalesce(k.first - 1, k.settled)), k.settled) as start
    ) as s
),
moved as (
    update grns.webhook_cursor c set low = b.stop, moved_at = now()
    from bounds b
    where c.id = b.id and c.low < b.stop
),
seen as (
    select e.*
    from bounds b
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.seq, e.workspace, e.message_id, e.kind, e.task_id, e.created_at
        from grns.events e
        where e.seq > b.start and e.seq <= b.stop
        order by e.seq
        limit $1
    ) as e
),
made as (
    insert into grns.webhook_deliveries (webhook_id, seq, workspace, message_id, kind, task_id)
    select w.id, s.seq, w.workspace, s.message_id, s.kind, s.task_id
    from seen s
    join grns.webhooks w on w.workspace = s.workspace collate "C" and w.is_enabled and w.since_seq <= s.seq
        and s.kind ~ w.pattern
    on conflict do nothing
    returning webhook_id
)
select b.stop as low, b.settled, (select count(*) from made) as deliveries,
    (select extract(epoch from now() - max(s.created_at))::double precision from seen s) as age_seconds
from bounds b
