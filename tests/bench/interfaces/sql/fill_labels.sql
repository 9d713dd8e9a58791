-- Writes what people say of one task of ten, with its words as the text indexer keeps them; that has indexed what has failed already.
create temporary table said as
select t.id, t.workspace, 'Import of shop ' || n.number % 400 as title, 'team-' || n.number % 10 as created_by,
    array_remove(array['site:' || n.number % 20, case when n.number % 50 = 0 then 'relaunch' end], null) as tags,
    array(
        select distinct w.word collate "C"
        from unnest(array['import', 'of', 'shop', (n.number % 400)::text, 'site', (n.number % 20)::text,
            case when n.number % 50 = 0 then 'relaunch' end]) as w (word)
        where w.word is not null order by 1
    ) as words
from grns.tasks t
cross join lateral (select (t.payload #>> '{order,id}')::integer as number) as n
where n.number % 10 = 0;
insert into grns.labels (task_id, workspace, title, tags, created_by)
select s.id, s.workspace, s.title, s.tags, s.created_by from said s;
insert into grns.tags (workspace, tag, task_id)
select s.workspace, t.tag, s.id from said s cross join lateral unnest(s.tags) as t (tag);
insert into grns.texts (owner, workspace, words) select s.id, s.workspace, s.words from said s on conflict do nothing;
insert into grns.words (workspace, word, owner)
select s.workspace, w.word, s.id from said s cross join lateral unnest(s.words) as w (word) on conflict do nothing;
drop table said
