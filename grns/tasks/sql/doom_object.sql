-- Gives up an object: the janitor deletes it. $1 object
update grns.blob_objects o set is_doomed = true where o.object = $1
