-- Which blobs are not there. $1 workspace, $2 their sha256
select s.sha256
from unnest($2::text[]) as s (sha256)
where not exists (select from grns.blobs b where b.workspace = $1 and b.sha256 = s.sha256)
