-- Deletes blobs that nothing refers to and that were not put for a while, of one page of all. A reference that is committed at the same
-- time is checked by Postgres: the statement fails then, and deletes nothing.
-- $1 workspace and $2 sha256 before the page, $3 rows to look at, $4 how long they are kept without a reference, in seconds,
-- $5 workspaces and $6 sha256 of those that may go, null for any
with page as (
    select b.workspace, b.sha256
    from grns.blobs b
    where (b.workspace, b.sha256) > ($1::text, $2::text)
    order by b.workspace, b.sha256
    limit $3
),
doomed as (
    select b.workspace, b.sha256
    from page p
    join grns.blobs b on b.workspace = p.workspace and b.sha256 = p.sha256
    where b.used_at < now() - $4::double precision * interval '1 second'
        and not exists (select from grns.blob_refs r where r.workspace = b.workspace and r.sha256 = b.sha256)
        and ($5::text[] is null or exists (
            select from unnest($5, $6::text[]) as a (workspace, sha256)
            where a.workspace = b.workspace and a.sha256 = b.sha256
        ))
    for update of b skip locked
),
gone as (
    delete from grns.blobs b
    using doomed d
    where b.workspace = d.workspace and b.sha256 = d.sha256
    returning b.workspace, b.sha256, b.object, b.size
),
doomed_objects as (
    insert into grns.blob_objects (object, workspace, size, is_doomed, delete_after)
    select g.object, g.workspace, g.size, true, now() + interval '1 hour' from gone g where g.object is not null
    on conflict (object) do update set is_doomed = true, delete_after = excluded.delete_after
),
last as (
    select p.workspace, p.sha256 from page p order by p.workspace desc, p.sha256 desc limit 1
)
select l.workspace, l.sha256, (select count(*) from page) as seen, (select count(*) from gone) as deleted
from last l
