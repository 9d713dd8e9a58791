-- Reads which scratch databases of ours are left over: a program that makes one has a session under its name from before it
-- is made until it is gone, and has others in it.
select d.datname::text as name
from pg_database d
where d.datname ~ '^grns_bench_[0-9a-f]{12}$'
    and pg_has_role(d.datdba, 'usage')
    and not exists (
        select from pg_stat_activity a
        where a.datname = d.datname or a.application_name = 'grns ' || d.datname::text
    )
order by name
