-- Reads documents with secrets: payloads and results of tasks, values of steps, checkpoints, payloads of messages
-- and schedules, patches of operations, and the signing secrets of webhooks. $1 the place behind which to begin, $2 how many, $3 the kind
-- of row. A place is that kind (c, e, m, o, r, s, t, w) and its key; `mail` is the id of a message and its agent.
select p.place, p.workspace, p.document, p.mail
from (
    (
        select 'o' || lpad(o.id::text, 20, '0') as place, o.workspace, o.patch::text as document, null::text[] as mail
        from grns.operations o
        where $3 = 'o' and o.patch::text like '%"$secret"%' and 'o' || lpad(o.id::text, 20, '0') > $1
        order by o.id
        limit $2
    )
    union all
    (
        select 'r' || t.id, t.workspace, t.result::text, null
        from grns.tasks t
        where $3 = 'r' and t.id > case when $1 like 'r%' then substr($1, 2) else '' end
            and t.result::text like '%"$secret"%'
        order by t.id
        limit $2
    )
    union all
    (
        select 'm' || lpad(m.seq::text, 20, '0'), m.workspace, m.payload::text, array[m.id::text, coalesce(m.to_agent, '')]
        from grns.mail m
        where $3 = 'm' and m.seq > case when $1 like 'm%' then substr($1, 2)::bigint else 0 end
            and m.payload::text like '%"$secret"%'
        order by m.seq
        limit $2
    )
    union all
    (
        select 's' || s.workspace || '/' || s.name, s.workspace, s.payload::text, null
        from grns.schedules s
        where $3 = 's' and s.payload::text like '%"$secret"%' and 's' || s.workspace || '/' || s.name > $1
        order by s.workspace, s.name
        limit $2
    )
    union all
    (
        select 't' || t.id, t.workspace, t.payload::text, null
        from grns.tasks t
        where $3 = 't' and t.id > case when $1 like 't%' then substr($1, 2) else '' end and t.payload::text like '%"$secret"%'
        order by t.id
        limit $2
    )
    union all
    (
        select 'c' || c.task_id, c.workspace, c.checkpoint::text, null
        from grns.progress c
        where $3 = 'c' and c.task_id > case when $1 like 'c%' then substr($1, 2) else '' end
            and c.checkpoint::text like '%"$secret"%'
        order by c.task_id
        limit $2
    )
    union all
    (
        select 'e' || e.task_id || '/' || e.name, e.workspace, e.value::text, null
        from grns.steps e
        where $3 = 'e' and e.kind = 'step'  -- what a signal has brought is none of ours
            and (e.task_id, e.name) > (
                case when $1 like 'e%' then split_part(substr($1, 2), '/', 1) else '' end,
                case when $1 like 'e%' then substr($1, strpos($1, '/') + 1) else '' end)
            and e.value::text like '%"$secret"%'
        order by e.task_id, e.name
        limit $2
    )
    union all
    (
        select 'w' || lpad(w.id::text, 20, '0'), w.workspace, convert_from(w.secret, 'UTF8'), null
        from grns.webhook_secrets w
        where $3 = 'w' and 'w' || lpad(w.id::text, 20, '0') > $1
            and substr(w.secret, 1, 10) = convert_to('{"$secret"', 'UTF8')
        order by w.id
        limit $2
    )
) as p
order by p.place collate "C"
limit $2
