-- Reads a part of a blob that is in Postgres. $1 workspace, $2 sha256, $3 place of the first byte, from 0, $4 bytes at most
select substring(b.content from $3::integer + 1 for $4::integer) as part
from grns.blobs b
where b.workspace = $1 and b.sha256 = $2 and b.content is not null
