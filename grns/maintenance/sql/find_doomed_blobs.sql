-- Which blobs of one page of all nothing refers to, and were not put for a while: what delete_blobs.sql would delete.
-- Of these as many as have so many bytes together, and how many there are in all.
-- $1 workspace and $2 sha256 before the page, $3 rows to look at, $4 how long they are kept without a reference, in seconds,
-- $5 bytes: one blob more than fits
select f.workspace, f.sha256, f.media_type, f.found
from (
    select b.workspace, b.sha256, b.media_type, count(*) over () as found,
        sum(b.size) over (order by b.workspace, b.sha256) - b.size as bytes_before
    from (
        select p.workspace, p.sha256, p.media_type, p.used_at, p.size
        from grns.blobs p
        where (p.workspace, p.sha256) > ($1::text, $2::text)
        order by p.workspace, p.sha256
        limit $3
    ) as b
    where b.used_at < now() - $4::double precision * interval '1 second'
        and not exists (select from grns.blob_refs r where r.workspace = b.workspace and r.sha256 = b.sha256)
) as f
where f.bytes_before < $5::bigint
order by f.workspace, f.sha256
