-- Holds one page of tasks against their events: what the log tells must be what the rows say.
-- $1 the task id to go on after, $2 how many tasks, $3 kinds of events, $4 the status after each,
-- $5 what may happen, as source>status>kind, $6 what of it sends a command, $7 what of it a dead letter
with page as (
    select t.id, t.status, t.version, t.attempt, t.uncounted_attempts, t.attempt_limit, t.owner_agent_id, t.last_message_id
    from grns.tasks t
    where t.id > $1
    order by t.id
    limit $2
),
history as (
    select e.task_id, e.seq, e.version, e.kind, e.attempt, e.message_id, k.status,
        case when e.kind = 'evt.task.claimed' then e.payload ->> 'agent_id' end as claimed_by,
        coalesce(lag(k.status) over life, 'none') || '>' || k.status || '>' || e.kind as step,
        lag(e.version) over life as before_version, lag(e.seq) over life as before_seq,
        lag(k.status) over life as before_status
    from page p
    join grns.events e on e.task_id = p.id
    join unnest($3::text[], $4::text[]) as k (kind, status) on k.kind = e.kind
    window life as (partition by e.task_id order by e.version, e.seq)
),
others as (
    select e.task_id, e.version, case when e.route is null then 'dlq.' else 'cmd.' end as stream
    from page p
    join grns.events e on e.task_id = p.id
    where e.route is not null or e.kind like 'dlq.task.%'
),
ends as (
    select distinct on (h.task_id) h.task_id, h.version, h.status, h.message_id
    from history h
    order by h.task_id, h.version desc, h.seq desc
),
lives as (
    select h.task_id, min(h.version) as first_version, count(*) as events, max(h.version) as last_version,
        count(*) filter (where h.kind = 'evt.task.claimed') as claims,
        count(distinct h.attempt) filter (where h.kind = 'evt.task.claimed') as attempts,
        (array_agg(h.claimed_by order by h.version desc) filter (where h.claimed_by is not null))[1] as claimed_by
    from history h
    group by h.task_id
),
-- Where the beginning of a task has gone with its partition, what is left of it is looked at all the same.
log_start as (
    select coalesce(min(lower_seq), 1) > 1 as is_cut from grns.log_partitions where not is_detaching
),
findings as (
    select p.id, 'replay' as invariant,
        'the row is ' || p.status || ' at version ' || p.version || ', its events say '
            || coalesce(e.status || ' at version ' || e.version, 'nothing') as detail
    from page p
    left join ends e on e.task_id = p.id
    cross join log_start l
    where (e.task_id is null and not l.is_cut)
        or e.status <> p.status or e.version <> p.version or e.message_id <> p.last_message_id
    union all
    select v.task_id, 'missing_event', v.events || ' events for the versions ' || v.first_version || ' to ' || v.last_version
    from lives v
    cross join log_start l
    where v.events <> v.last_version - v.first_version + 1 or (v.first_version <> 1 and not l.is_cut)
    union all
    select h.task_id, case when h.before_status in ('succeeded', 'failed', 'dead', 'cancelled')
            then 'terminal_is_final' else 'transition' end,
        'version ' || h.version || ' went ' || h.step
    from history h
    where (h.before_version = h.version - 1 or h.version = 1) and not h.step = any($5::text[])
    union all
    select h.task_id, 'order', 'version ' || h.version || ' has the number ' || h.seq || ', the one before it ' || h.before_seq
    from history h
    where h.seq < h.before_seq
    union all
    -- Grouped, not joined: a join would compare each of the history with each of the others.
    select s.task_id, 'missing_message',
        'version ' || s.version || ' went ' || max(s.step) || ' and sent no ' || s.stream || '*'
    from (
        select h.task_id, h.version, n.stream, h.step
        from history h
        join (select unnest($6::text[]) as step, 'cmd.' as stream union all select unnest($7::text[]), 'dlq.') n
            on n.step = h.step
        where h.before_version = h.version - 1 or h.version = 1
        union all
        select o.task_id, o.version, o.stream, null from others o
    ) s
    group by s.task_id, s.version, s.stream
    having count(s.step) > 0 and count(s.step) = count(*)
    union all
    select p.id, 'attempts', 'attempt ' || p.attempt || ', ' || p.uncounted_attempts || ' uncounted_attempts, of ' || p.attempt_limit
    from page p
    where p.attempt - p.uncounted_attempts > p.attempt_limit
    union all
    select p.id, 'attempts', 'attempt ' || p.attempt || ', claimed ' || v.claims || ' times under ' || v.attempts || ' numbers'
    from page p
    join lives v on v.task_id = p.id and v.first_version = 1
    where v.claims <> p.attempt or v.attempts <> v.claims
    union all
    select p.id, 'owner', 'it runs on ' || p.owner_agent_id || ', and was claimed by ' || v.claimed_by
    from page p
    join lives v on v.task_id = p.id
    where p.status = 'running' and v.claimed_by <> p.owner_agent_id
)
select (select count(*) from page) as seen, (select max(p.id) from page p) as last_id,
    f.id as task_id, f.invariant, f.detail
from (select) as once
left join findings f on true
order by f.id, f.invariant
