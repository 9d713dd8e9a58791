-- Lists tables of the log that were detached, but not yet dropped (or made, but not attached).
select c.relname::text as name, format('drop table grns.%I', c.relname) as drop_statement
from pg_class c
where c.relnamespace = 'grns'::regnamespace and c.relkind = 'r' and c.relname ~ '^events_[0-9]{19}$'
    and not exists (select from pg_inherits i where i.inhrelid = c.oid)
order by c.relname
