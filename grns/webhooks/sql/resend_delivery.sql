-- Has a delivery sent again, with a fresh budget of attempts, and tells the log. Answers with its state before and with
-- whether it is sent again: it is not while an attempt is under way, nor where its webhook is disabled. No row where
-- there is none. $1 workspace, $2 webhook, $3 number, $4 who asks
with known as (
    select w.id, w.workspace, w.kinds, w.is_enabled
    from grns.webhooks w
    where w.workspace = $1 and w.id = $2 and w.deleted_at is null
),
held as (
    select d.webhook_id, d.seq, d.state, d.message_id, d.claim_id is not null as is_under_way
    from known k
    join grns.webhook_deliveries d on d.webhook_id = k.id
    where d.seq = $3
    for update of d
),
again as (
    update grns.webhook_deliveries d
    set state = 'pending', due_at = now(), ended_at = null, uncounted_attempts = d.attempts
    from held h
    cross join known k
    where d.webhook_id = h.webhook_id and d.seq = h.seq and k.is_enabled and not h.is_under_way
    returning d.seq
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, causation_id, actor, payload)
    select 0, k.workspace, 'evt.webhook.resent', replace(gen_random_uuid()::text, '-', ''), h.message_id, $4::text,
        json_build_object('webhook_id', k.id, 'kinds', k.kinds, 'is_enabled', true, 'message_id', h.message_id,
            'actor', $4::text)
    from known k
    cross join held h
    join again a on a.seq = h.seq
)
select h.state, h.is_under_way, k.is_enabled, exists (select from again) as is_again
from held h
cross join known k
