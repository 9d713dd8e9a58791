-- Reads how the last tasks of schedules are, once these are locked. $1 ids
select t.id, t.status, t.waits_for from grns.tasks t where t.id = any($1::text[])
