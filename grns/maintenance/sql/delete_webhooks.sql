-- Takes away what was sent to one webhook that was deleted, a page at a time, and the webhook with the last page.
-- Returns the rows. $1 rows at most
with doomed as (
    select w.id from grns.webhooks w where w.deleted_at is not null order by w.id limit 1 for update skip locked
),
gone as (
    delete from grns.webhook_deliveries d
    where d.ctid = any(array(
        select o.ctid from doomed x join grns.webhook_deliveries o on o.webhook_id = x.id limit $1
    ))
    returning d.seq
),
last as (
    delete from grns.webhooks w using doomed x
    where w.id = x.id and (select count(*) from gone) < $1::integer
    returning w.id
)
select x.id from doomed x join gone g on true
union all
select l.id from last l
