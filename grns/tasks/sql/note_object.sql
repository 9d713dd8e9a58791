-- Notes an object that is about to be written to the blob store, if there is room for it.
-- $1 object, $2 workspace, $3 size, $4 media type, $5 most bytes of all of a workspace
with checked as materialized (
    select grns.check_media_type($4::text), grns.check_room_for_blob($2::text, $3::bigint, $5::bigint)
)
insert into grns.blob_objects (object, workspace, size, delete_after)
select $1::text, $2::text, $3::bigint, now() + interval '1 day' from checked
