-- Restores rows of {table} of tasks that were restored just now. $1 lines of an archive, as a JSON array
insert into grns.{table} overriding system value
select r.*
from json_array_elements($1::json) as l (line)
cross join lateral json_array_elements(l.line -> '{table}') as e (row)
cross join lateral json_populate_record(null::grns.{table}, e.row) as r
on conflict do nothing
