-- Lists blobs, the latest first, each with how many tasks, messages and schedules refer to it, up to 1,000.
-- $1 workspace, $2 sha256 (null: all), $3 created_at and $4 sha256 of the last one before the page (null: from the start), $5 rows at most
select 'sha256-' || b.sha256 as id, b.size, b.media_type, b.created_at, b.used_at,
    (
        select count(*) from (
            select from grns.blob_refs r where r.workspace = b.workspace and r.sha256 = b.sha256 limit 1000
        ) as f
    ) as references
from grns.blobs b
where b.workspace = $1 and ($2::text is null or b.sha256 = $2)
    and ($3::timestamptz is null or (b.created_at, b.sha256) < ($3, $4::text))
order by b.created_at desc, b.sha256 desc
limit $5
