-- Lists what the attempts of a task have used, in order. $1 task, $2 workspace
select u.attempt, u.item, u.model, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens,
    u.reasoning_tokens, u.compute_seconds, u.cost::double precision as cost, u.cost_source, u.at
from grns.usage u
where u.task_id = $1 and u.workspace = $2
order by u.attempt, u.at, u.item
limit 1000
