-- Notes what came of an attempt, if it is still the one that counts; answers with whether the webhook was disabled for
-- it, with nothing where it does not count. Of the webhook it is noted since when it fails; one that has failed for too
-- long, or wants nothing more, is disabled, and the log tells.
-- $1 webhook, $2 number of the event, $3 who has taken it, $4 the state after it (pending: it is tried again),
-- $5 in how many seconds, $6 status that was answered, $7 error, $8 milliseconds that it took, $9 whether it says
-- anything of the webhook, $10 why it wants nothing more (null: it does), $11 for how many seconds it may fail
with ended as (
    update grns.webhook_deliveries d
    set state = $4, due_at = case $4 when 'pending' then now() + $5::double precision * interval '1 second' end,
        claim_id = null, status_code = $6, error = $7, duration_ms = $8, ended_at = case when $4 <> 'pending' then now() end
    where d.webhook_id = $1 and d.seq = $2 and d.claim_id = $3
    returning d.webhook_id
),
known as (
    select w.id, w.is_enabled and $4 <> 'delivered'
            and ($10::text is not null or w.failing_since < now() - $11::double precision * interval '1 second')
            is true as is_over
    from ended e
    join grns.webhooks w on w.id = e.webhook_id
    where $9::boolean and case $4
        when 'delivered' then w.failing_since is not null or w.last_delivered_at is null
            or w.last_delivered_at < now() - interval '1 minute'
        else w.failing_since is null or $10::text is not null
            or w.failing_since < now() - $11::double precision * interval '1 second'
        end
    for no key update of w
),
noted as (
    update grns.webhooks w
    set failing_since = case when $4 <> 'delivered' then coalesce(w.failing_since, now()) end,
        last_delivered_at = case $4 when 'delivered' then now() else w.last_delivered_at end,
        is_enabled = w.is_enabled and not k.is_over,
        disabled_reason = case when k.is_over then coalesce($10::text, 'failing') else w.disabled_reason end,
        changed_at = case when k.is_over then now() else w.changed_at end,
        changed_by = case when not k.is_over then w.changed_by end,
        version = w.version + k.is_over::integer
    from known k
    where w.id = k.id
    returning w.id, w.workspace, w.kinds, w.disabled_reason, k.is_over
),
logged as (
    insert into grns.events (version, workspace, kind, trace_id, payload)
    select 0, n.workspace, 'evt.webhook.changed', replace(gen_random_uuid()::text, '-', ''),
        json_build_object('webhook_id', n.id, 'kinds', n.kinds, 'is_enabled', false,
            'fields', json_build_array('is_enabled'), 'reason', n.disabled_reason, 'actor', null)
    from noted n
    where n.is_over
)
select coalesce((select n.is_over from noted n), false) as is_disabled from ended e
