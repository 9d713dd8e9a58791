-- Looks at the next rows of one kind, in the order of their primary key, and returns those with secrets: payloads and results of tasks,
-- values of steps, checkpoints, payloads of messages and schedules, patches of operations, signing secrets of webhooks. The last row of
-- a full page is returned also without a secret, its document null: the next page begins after it. So a page costs the same however few
-- rows have secrets. $1 the place after which to begin ('' for the first page), $2 how many rows to look at, $3 the kind of row.
-- A place is the kind (c, e, m, o, r, s, t, w) and the key of a row; `mail` is the id of a message and its agent. Each kind compares the
-- columns of its key, never the text of a place: texts have another order.
select p.number, p.place, p.workspace, case when p.document like '%"$secret"%' then p.document end as document, p.mail
from (
    (
        select row_number() over (order by o.id) as number, 'o' || lpad(o.id::text, 20, '0') as place, o.workspace,
            o.patch::text as document, null::text[] as mail
        from grns.operations o
        where $3 = 'o' and o.id > case $3 when 'o' then ('0' || substr($1, 2))::bigint end
        order by o.id
        limit $2
    )
    union all
    (
        select row_number() over (order by t.id), 'r' || t.id, t.workspace, t.result::text, null
        from grns.tasks t
        where $3 = 'r' and t.id > substr($1, 2)
        order by t.id
        limit $2
    )
    union all
    (
        select row_number() over (order by m.seq), 'm' || lpad(m.seq::text, 20, '0'), m.workspace, m.payload::text,
            array[m.id::text, coalesce(m.to_agent, '')]
        from grns.mail m
        where $3 = 'm' and m.seq > case $3 when 'm' then ('0' || substr($1, 2))::bigint end
        order by m.seq
        limit $2
    )
    union all
    (
        select row_number() over (order by s.workspace, s.name), 's' || s.workspace || '/' || s.name, s.workspace, s.payload::text, null
        from grns.schedules s
        where $3 = 's' and (s.workspace, s.name) > (split_part(substr($1, 2), '/', 1), substr($1, strpos($1, '/') + 1))
        order by s.workspace, s.name
        limit $2
    )
    union all
    (
        select row_number() over (order by t.id), 't' || t.id, t.workspace, t.payload::text, null
        from grns.tasks t
        where $3 = 't' and t.id > substr($1, 2)
        order by t.id
        limit $2
    )
    union all
    (
        select row_number() over (order by c.task_id), 'c' || c.task_id, c.workspace, c.checkpoint::text, null
        from grns.progress c
        where $3 = 'c' and c.task_id > substr($1, 2)
        order by c.task_id
        limit $2
    )
    union all
    (
        select row_number() over (order by e.task_id, e.name), 'e' || e.task_id || '/' || e.name, e.workspace,
            case when e.kind = 'step' then e.value::text end, null  -- what a signal has brought is none of ours
        from grns.steps e
        where $3 = 'e' and (e.task_id, e.name) > (split_part(substr($1, 2), '/', 1), substr($1, strpos($1, '/') + 1))
        order by e.task_id, e.name
        limit $2
    )
    union all
    (
        select row_number() over (order by w.id), 'w' || lpad(w.id::text, 20, '0'), w.workspace,
            case when substr(w.secret, 1, 10) = convert_to('{"$secret"', 'UTF8') then convert_from(w.secret, 'UTF8') end, null
        from grns.webhook_secrets w
        where $3 = 'w' and w.id > case $3 when 'w' then ('0' || substr($1, 2))::bigint end
        order by w.id
        limit $2
    )
) as p
where p.document like '%"$secret"%' or p.number = $2
order by p.number
