-- Reads a filter by its name. $1 workspace, $2 name
select f.text
from grns.saved_filters f
where f.workspace = $1 and f.name = $2
