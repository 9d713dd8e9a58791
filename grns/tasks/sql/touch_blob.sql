-- Keeps a blob that is there as if it had been put now. No row: it is not there. $1 workspace, $2 sha256
update grns.blobs b set used_at = statement_timestamp()
where b.workspace = $1 and b.sha256 = $2
returning b.size, b.media_type
