-- Reads how many tasks of each key with a rate may begin, and the time.
select date_part('epoch', now()) as now, k.workspace, k.key, k.tokens, date_part('epoch', k.filled_at) as filled_at
from (select) as one
left join grns.limit_tokens k on true
