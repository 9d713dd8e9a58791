-- Notes an object that is about to be written to the blob store. $1 object, $2 workspace
insert into grns.blob_objects (object, workspace) values ($1, $2)
