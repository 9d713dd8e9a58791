-- Reads what is said in what the next numbers of the log tell of, as it is now: by tasks that have labels, that have failed or that are
-- run again, by each new task where payloads are indexed, and in messages. One row without an owner, where there is nothing.
-- Of a message to many, the first ten are read.
-- $1 numbers of the log at most, $2 bytes of a task's payload at most; null: payloads are not indexed
with bounds as (
    select c.low, least(c.low + $1::integer, k.settled) as high, k.settled > c.low + $1::integer as has_more
    from grns.text_cursor c
    cross join lateral (
        select greatest((select r.low from grns.relay_cursor r), (select n.low from grns.count_cursor n), c.low) as settled
    ) as k
),
named as materialized (
    select e.*
    from bounds b
    cross join lateral (  -- with its limit no planner can turn this into a scan of the whole log
        select e.workspace, e.task_id,
            (e.kind in ('evt.task.changed', 'evt.task.dead', 'evt.task.failed', 'evt.task.restored') or e.was in ('d', 'f', 'c')) is true as is_changed,
            e.was is null and e.kind in ('evt.task.queued', 'evt.task.waiting') as is_new,
            case when e.kind = 'evt.message.sent' then (e.payload ->> 'message_id')::uuid end as message_id
        from grns.events e
        where e.seq > b.low and e.seq <= b.high
        order by e.seq
        limit $1
    ) as e
    where e.is_changed or e.is_new or e.message_id is not null
),
tasks as (
    select n.task_id, bool_or(n.is_changed) as is_changed from named n where n.message_id is null group by n.task_id
),
said as (
    select t.id as owner, l.title, l.tags,
        case when t.status in ('dead', 'failed') then concat_ws(' ', t.last_error ->> 'class', t.last_error ->> 'message') end as error,
        l.description, case when $2::integer is not null and octet_length(t.payload::text) <= $2 then t.payload::text end as payload
    from tasks n
    left join lateral (select l.* from grns.labels l where l.task_id = n.task_id limit 1) as l on true
    cross join lateral (select t.* from grns.tasks t where t.id = n.task_id limit 1) as t
    where n.is_changed or l.task_id is not null or $2::integer is not null
    union all
    select grns.mail_owner(m.seq), m.type, null, null, null, m.payload::text
    from named n
    cross join lateral (
        select m.* from grns.mail m where m.workspace = n.workspace and m.id = n.message_id order by m.to_agent limit 10
    ) as m
)
select b.low, b.high, b.has_more, s.*
from bounds b
left join said s on true
