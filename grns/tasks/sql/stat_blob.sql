-- Reads where a blob is, its size and what it is. $1 workspace, $2 sha256
select b.sha256, b.size, b.media_type, b.object from grns.blobs b where b.workspace = $1 and b.sha256 = $2
