-- The task that a page begins with.
-- $1 after this id
select min(t.id) as id from grns.tasks t where t.id > $1
