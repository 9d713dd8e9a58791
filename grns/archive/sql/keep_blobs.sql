-- Keeps blobs for another day, and returns which of them are there. $1 workspace, $2 their sha256
update grns.blobs b set used_at = statement_timestamp()
where b.workspace = $1 and b.sha256 = any($2::text[])
returning b.sha256
