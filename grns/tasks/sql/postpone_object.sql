-- Has an object that could not be deleted tried again later. $1 object
update grns.blob_objects o set delete_after = now() + interval '10 minutes' where o.is_doomed and o.object = $1
