-- Changes what is said of a task: see the function. $1 id, $2 changes, $3 workspace, $4 who asks, $5 reason
select grns.label_task($1, $2::text::jsonb, $3, $4, $5) as is_there
