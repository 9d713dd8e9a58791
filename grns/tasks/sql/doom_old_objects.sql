-- Gives up objects of which nothing has come for a day. What was given up cannot become a blob's any more.
update grns.blob_objects o set is_doomed = true, delete_after = now() + interval '1 hour'
where not o.is_doomed and o.delete_after < now()
