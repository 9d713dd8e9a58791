-- Reads the size of a blob and what it is. $1 workspace, $2 sha256
select b.size, b.media_type from grns.blobs b where b.workspace = $1 and b.sha256 = $2
