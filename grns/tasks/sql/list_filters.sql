-- Lists saved filters by their names. $1 workspace, $2 how many at most, $3 the name to go on behind (none: '')
select f.name, f.text, f.saved_by, f.saved_at
from grns.saved_filters f
where f.workspace = $1 and f.name > $3
order by f.name
limit $2
