-- Takes deliveries that are due, some of each webhook, for a while: a sender that had one before can note nothing of it any
-- more, and where nothing is noted it is due again. Each comes with all that it takes to be sent: where to, the event
-- (null where that is not in the log any more), the secrets, and what time it is.
-- $1 who takes them (a new id each time), $2 whether of webhooks that fail or of the others, $3 of one webhook at most,
-- $4 deliveries at most, $5 for how many seconds, $6 webhooks that are being sent to, $7 how much of each,
-- $8 names of the keys that open sealed secrets
with webhook as (
    select w.id
    from grns.webhooks w
    where w.is_enabled and (w.failing_since is not null) = $2::boolean
        and not exists (  -- whose secrets another sender can open
            select from grns.webhook_secrets s
            where s.webhook_id = w.id and (s.expires_at is null or s.expires_at > now())
                and case when substr(s.secret, 1, 10) = convert_to('{"$secret"', 'UTF8')
                    then split_part(convert_from(s.secret, 'UTF8'), '.', 2) <> all($8::text[]) end)
    order by random()  -- where there is not room for all, each has the same chance
),
chosen as (
    select d.webhook_id, d.seq
    from webhook w
    cross join lateral (
        select o.webhook_id, o.seq
        from grns.webhook_deliveries o
        where o.webhook_id = w.id and o.due_at <= now()
        order by o.due_at
        limit greatest(0, $3::integer - coalesce(($7::integer[])[array_position($6::text[], w.id)], 0))
        for update skip locked
    ) as d
    limit $4
),
claimed as (
    update grns.webhook_deliveries d
    set claim_id = $1, attempts = d.attempts + 1, attempted_at = now(),
        due_at = now() + $5::double precision * interval '1 second'
    from chosen c
    where d.webhook_id = c.webhook_id and d.seq = c.seq
    returning d.webhook_id, d.seq, d.workspace, d.message_id, d.kind, d.attempts - d.uncounted_attempts as attempt
)
select c.webhook_id, c.seq, c.workspace, c.message_id::text as message_id, c.kind, c.attempt, w.url,
    array(select s.secret from grns.webhook_secrets s
        where s.webhook_id = c.webhook_id and (s.expires_at is null or s.expires_at > now())
        order by s.id desc) as secrets,
    e.version, e.trace_id, e.causation_id::text as causation_id, e.created_at as emitted_at, e.payload::text as payload, e.was::text as was,
    extract(epoch from now())::double precision as now_seconds
from claimed c
join grns.webhooks w on w.id = c.webhook_id
left join grns.events e on e.seq = c.seq and e.message_id = c.message_id
