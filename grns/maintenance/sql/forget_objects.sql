-- Forgets objects that are deleted. $1 objects
delete from grns.blob_objects o where o.is_doomed and o.object = any($1::text[])
