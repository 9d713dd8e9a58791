-- Reads the first tasks of lines, in the order in which they are admitted. $1 workspaces, $2 keys, each an array in JSON,
-- $3 tasks at most of each line, $4 tasks to leave out
select w.ordinal, h.priority, h.id
from unnest($1::text[], $2::text[]) with ordinality as w (workspace, keys, ordinal)
cross join lateral (
    select t.priority, t.id from grns.tasks t
    where t.waits_for = 'limit' and t.workspace = w.workspace
        and t.limits = array(select k.key from json_array_elements_text(w.keys::json) with ordinality as k (key, place) order by k.place)
        and t.id <> all($4::text[])
    order by t.priority, t.id
    limit $3
) as h
