-- Reads whether an attempt has taken longer than expected. $1 id, $2 workspace, $3 attempt
select exists (
    select from grns.progress p
    where p.task_id = $1 and p.workspace = $2 and p.attempt = $3 and p.overdue_seconds is not null) as is_overdue
