-- Counts messages that belong to no task and are open. $1 workspace, $2 how many at most
select count(*) as number
from (select from grns.dead_letters d where d.workspace = $1 and d.state = 'new' limit $2) as l
