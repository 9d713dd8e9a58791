-- Reads what the task types of a workspace have declared as secret. $1 workspace
select k.task_type, k.secret_paths from grns.task_types k where k.workspace = $1 and k.secret_paths <> '{}'
