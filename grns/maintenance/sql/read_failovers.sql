-- Lists the failovers that were noticed, oldest first. $1 those after this number
select f.id, f.noticed_at, f.last_seen_at, f.old_system_identifier, f.old_timeline, f.new_system_identifier,
    f.new_timeline
from grns.failovers f
where f.id > $1
order by f.id
