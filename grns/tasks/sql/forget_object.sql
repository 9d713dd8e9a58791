-- Forgets an object that is deleted. $1 object
delete from grns.blob_objects o where o.is_doomed and o.object = $1
