-- Notes that a key is used, once a minute at most; who comes at the same moment need not wait. $1 id
update grns.api_keys k set last_used_at = now()
from (
    select d.id from grns.api_keys d
    where d.id = $1 and coalesce(d.last_used_at < now() - interval '1 minute', true)
    for no key update skip locked
) as due
where k.id = due.id
returning k.id
