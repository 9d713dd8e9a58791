-- Forgets keys of which the whole burst may begin again, or whose limit has no rate any more. $1 epoch
delete from grns.limit_tokens k
using grns.leases l
where l.name = 'admitter' and l.epoch = $1 and not exists (
    select from grns.limits r
    where r.workspace = k.workspace and r.name = split_part(k.key, ':', 1)
        and k.tokens + date_part('epoch', now() - k.filled_at) * r.rate_count / r.rate_seconds < r.burst
)
