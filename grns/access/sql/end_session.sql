-- Ends a session of the dashboard, and forgets those that would be over by now. $1 nonce, $2 when it is over
with forgotten as (
    delete from grns.ended_sessions e where e.expires_at < now()
)
insert into grns.ended_sessions (nonce, expires_at) values ($1, to_timestamp($2::double precision))
on conflict do nothing
