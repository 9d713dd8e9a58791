-- Writes what attempts that own their tasks have reported, with an event for each ten percent (for each new step if there is no
-- percentage), of one task at most each 30 s. Answers for each with `recorded`, `lost`, or `locked` if another transaction has
-- the task locked now, and whether its attempt has taken longer than expected.
-- $1 ids, $2 attempts, $3 lease_ids, $4 workspaces, $5 percents, $6 steps, $7 checkpoints, $8 seconds that it will still take,
-- $9 for how many seconds the attempt may report nothing. Null changes nothing.
with wanted as (
    select w.*
    from unnest($1::text[], $2::integer[], $3::uuid[], $4::text[], $5::double precision[], $6::text[], $7::text[]::jsonb[],
        $8::double precision[], $9::double precision[]) with ordinality
        as w (id, attempt, lease_id, workspace, percent, step, checkpoint, remaining, stall_seconds, place)
),
-- The task stays this attempt's until the report is committed.
held as (
    select t.id, t.attempt, t.lease_id, t.workspace, t.owner_agent_id, t.version, t.trace_id, t.last_message_id
    from grns.tasks t
    where t.id = any($1::text[]) and t.status = 'running' and exists (
        select from wanted w
        where w.id = t.id and w.attempt = t.attempt and w.lease_id = t.lease_id and w.workspace = t.workspace)
    order by t.id
    for share of t skip locked
),
owned as (
    select w.*, h.owner_agent_id, h.version, h.trace_id, h.last_message_id
    from wanted w
    join held h on h.id = w.id and h.attempt = w.attempt and h.lease_id = w.lease_id and h.workspace = w.workspace
),
-- With what the attempt has reported before. It alone writes that.
merged as (
    select o.*, coalesce(o.percent, p.percent) as percent_now, coalesce(o.step, p.step) as step_now,
        (o.percent is not null or o.step is not null)
            and coalesce(b.logged_at < now() - interval '30 seconds', true)
            and case when coalesce(o.percent, p.percent) is null then coalesce(o.step, p.step) is distinct from p.logged_step
                else coalesce(floor(coalesce(o.percent, p.percent) / 10) > p.logged, true) end as is_news
    from owned o
    left join grns.progress b on b.task_id = o.id
    left join lateral (
        select b.percent, b.step, b.logged, b.logged_step where b.attempt = o.attempt) as p on true
),
recorded as (
    insert into grns.progress as p (task_id, workspace, attempt, percent, step, completes_at, reported_at, logged, logged_step,
        stall_seconds, stalls_at, checkpoint, logged_at)
    select m.id, m.workspace, m.attempt, m.percent_now, m.step_now, now() + m.remaining * interval '1 second', now(),
        case when m.is_news then floor(m.percent_now / 10) end, case when m.is_news then m.step_now end,
        m.stall_seconds, now() + m.stall_seconds * interval '1 second', m.checkpoint, case when m.is_news then now() end
    from merged m
    order by m.id
    on conflict (task_id) do update
    set attempt = excluded.attempt, percent = excluded.percent, step = excluded.step, reported_at = excluded.reported_at,
        completes_at = coalesce(excluded.completes_at, case when p.attempt = excluded.attempt then p.completes_at end),
        logged = coalesce(excluded.logged, case when p.attempt = excluded.attempt then p.logged end),
        logged_step = coalesce(excluded.logged_step, case when p.attempt = excluded.attempt then p.logged_step end),
        stall_seconds = coalesce(excluded.stall_seconds, case when p.attempt = excluded.attempt then p.stall_seconds end),
        -- It is not overdue any more if it expects to be done later.
        overdue_seconds = case when p.attempt = excluded.attempt and excluded.completes_at is null then p.overdue_seconds end,
        stalls_at = coalesce(excluded.stalls_at, case when p.attempt = excluded.attempt then p.stalls_at end),
        has_stalled = false,
        checkpoint = coalesce(excluded.checkpoint, p.checkpoint), logged_at = coalesce(excluded.logged_at, p.logged_at)
    returning p.task_id, p.overdue_seconds is not null as is_overdue
),
logged as (
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, payload)
    select m.version, gen_random_uuid(), m.workspace, m.id, 'evt.attempt.progressed', m.attempt, m.trace_id, m.last_message_id,
        json_build_object('task_id', m.id, 'agent_id', m.owner_agent_id, 'attempt', m.attempt,
            'progress_percent', m.percent_now, 'current_step', m.step_now)
    from merged m
    where m.is_news
)
select case
        when w.place in (select o.place from owned o) then 'recorded'
        when t.id is not null then 'locked'
        else 'lost'
    end as verdict,
    coalesce(r.is_overdue, false) as is_overdue
from wanted w
left join recorded r on r.task_id = w.id
left join grns.tasks t on t.id = w.id and t.attempt = w.attempt and t.lease_id = w.lease_id and t.workspace = w.workspace
    and t.status = 'running'
order by w.place
