-- Keeps bytes: see grns.put_blob. $1 content, $2 media type, $3 workspace, $4 most bytes of a blob, $5 of all of a workspace
select grns.put_blob($1::bytea, $2::text, $3::text, $4::bigint, $5::bigint)::text as ref
