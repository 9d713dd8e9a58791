-- Tasks that were restored from an archive, and until when retention keeps them.
create table grns.kept_tasks (
    task_id   text collate "C" primary key,
    workspace text collate "C" not null,
    until     timestamptz not null
);
create index kept_tasks_until on grns.kept_tasks (until);

-- Inserts the rows that lines of an archive have of a table, as they were, but for those that are there. JSON cannot tell a column
-- that is null from one that has the JSON null: `$nulls` of a row names the latter.
create function grns.restore_rows(name text, lines json) returns void language plpgsql as $$
declare
    columns text;
    expressions text;
begin
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum),
        string_agg(format(case when a.atttypid in ('json'::regtype, 'jsonb'::regtype)
            then 'case when (e.row -> ''$nulls'')::jsonb ? %1$L then ''null'' else r.%1$I end' else 'r.%1$I' end, a.attname),
            ', ' order by a.attnum)
    into columns, expressions
    from pg_attribute a
    where a.attrelid = format('grns.%I', name)::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = '';
    execute format(
        'insert into grns.%1$I (%2$s) overriding system value select %3$s'
        ' from json_array_elements($1) as l (line)'
        ' cross join lateral json_array_elements(l.line -> %1$L) as e (row)'
        ' cross join lateral json_populate_record(null::grns.%1$I, e.row) as r'
        ' on conflict do nothing', name, columns, expressions) using lines;
end
$$;
