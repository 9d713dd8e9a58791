-- Reads which doomed objects are to be deleted now, the oldest first. $1 rows at most
select o.object from grns.blob_objects o where o.is_doomed and o.delete_after < now() order by o.delete_after limit $1
