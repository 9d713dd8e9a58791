-- Reads the rows of {table} of tasks, as JSON, with the columns that have the JSON null. $1 ids of tasks
select t.{owner} as owner, row_to_json(t)::text as document, array_remove(array[{nulls}]::text[], null) as nulls
from grns.{table} t
where t.{owner} = any($1::text[]) and {condition}
order by t.{owner}, row_to_json(t)::text
