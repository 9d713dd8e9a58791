-- Dooms objects that were noted a day ago and that no blob has, and answers with some of those that are doomed, the oldest first.
-- $1 rows at most
with given_up as (
    update grns.blob_objects o
    set is_doomed = true
    where not o.is_doomed and o.noted_at < now() - interval '1 day'
)
select o.object from grns.blob_objects o where o.is_doomed order by o.noted_at limit $1
