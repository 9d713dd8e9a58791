-- Tells every attempt of a slice: when it was claimed, when it ended, and when the next one was queued.
create unlogged table filling.attempts as
select l.id, a.attempt, a.attempt = l.attempts as is_last,
    l.created_at + (a.attempt - 1) * s.cycle + s.wait as claimed_at,
    l.created_at + (a.attempt - 1) * s.cycle + s.wait + s.run as ended_at,
    case when l.fate = 'retry_wait' and a.attempt = l.attempts then l.until
        else l.created_at + a.attempt * s.cycle end as due_at,
    case when f.number is not null then json_build_object('class', f.error_class,
        'message', replace(f.message, '#', (l.number % 1000)::text), 'frames', f.frames) end as error,
    f.error_class, f.fingerprint
from filling.lives l
cross join lateral (
    select l.wait_ms * interval '1 ms' as wait, l.run_ms * interval '1 ms' as run,
        (l.wait_ms + l.run_ms + l.backoff_ms) * interval '1 ms' as cycle
) as s
cross join lateral generate_series(1, l.attempts) as a (attempt)
left join filling.failures f on f.number = l.failure
