-- Lists messages that belong to no task and are open, the latest first.
-- $1 workspace, $2 how many at most, $3 time and $4 id of the one to go on behind (null: from the beginning)
select d.id, d.subject as name, d.reason, d.created_at as at, d.delivery_count as attempts, d.state as status
from grns.dead_letters d
where d.workspace = $1 and d.state = 'new'
    -- no `or`: that would be no condition of the index, and each page would read all before it
    and (d.created_at, d.id)
        < (coalesce($3::timestamptz, 'infinity'), coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
order by d.created_at desc, d.id desc
limit $2
