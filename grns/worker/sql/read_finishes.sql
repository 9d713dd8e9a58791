-- Reads back what a finish whose answer was lost has written: its event says so, wherever the task is by now.
-- $1 ids, $2 event ids, $3 workspaces
select w.event_id,
    case e.kind
        when 'evt.task.completed' then 'succeeded'
        when 'evt.task.retry_scheduled' then 'retry_wait'
        when 'evt.task.snoozed' then 'retry_wait'
        when 'evt.task.waiting' then 'waiting'
        else substr(e.kind, length('evt.task.') + 1)
    end as verdict,
    null::double precision as total_seconds
from unnest($1::text[], $2::uuid[], $3::text[]) as w (id, event_id, workspace)
join grns.events e on e.task_id = w.id and e.message_id = w.event_id and e.workspace = w.workspace
