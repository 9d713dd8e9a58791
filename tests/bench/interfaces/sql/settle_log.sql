-- Whoever reads the log from here on begins behind it: it is published, and webhooks were told of it.
with log as (
    select case when s.is_called then s.last_value else 0 end as last_seq from grns.events_seq s
),
published as (
    update grns.relay_cursor set low = (select l.last_seq from log l), published = '{}'
)
update grns.webhook_cursor set low = (select l.last_seq from log l)
