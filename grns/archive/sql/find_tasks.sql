-- Which tasks are there. $1 their ids
select t.id from grns.tasks t where t.id = any($1::text[])
