-- Gives up an object of which no blob has come: the janitor deletes it. $1 object
update grns.blob_objects o set is_doomed = true, delete_after = now() + interval '1 hour'
where o.object = $1 and not o.is_doomed
