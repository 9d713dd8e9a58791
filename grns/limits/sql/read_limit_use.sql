-- Tells whether there are limits, or tasks that fall under some: otherwise the admitter has nothing to do.
select exists (select from grns.limits) or exists (select from grns.tasks t where t.waits_for = 'limit')
    or exists (
        select from grns.tasks t
        where t.limits is not null and (t.queued_at is not null or t.lease_until is not null)
    ) as is_used
