-- Keeps a blob whose bytes are in the blob store: see grns.keep_blob. $1 workspace, $2 sha256, $3 size, $4 media type, $5 object,
-- $6 most bytes of all of a workspace
select grns.keep_blob($1::text, $2::text, $3::bigint, $4::text, null, $5::text, $6::bigint)::text as ref
