-- Keeps the words of tasks and messages, and moves the cursor with them: all of it, or nothing where another indexer has moved it.
-- Words that an owner does not say any more go; one that was deleted meanwhile gets none. Answers with a row if the cursor was moved.
-- $1 where the cursor is, $2 where it goes, $3 owners, $4 the words of each, sorted, with blanks between them
with moved as (
    update grns.text_cursor c set low = $2 where c.low = $1 returning c.low
),
there as (
    select t.id as owner, t.workspace, i.text
    from unnest($3::text[], $4::text[]) as i (owner, text)
    cross join lateral (  -- it is not deleted meanwhile
        select t.id, t.workspace from grns.tasks t where t.id = i.owner for key share
    ) as t
    where exists (select from moved)
    union all
    select i.owner, l.workspace, i.text
    from unnest($3::text[], $4::text[]) as i (owner, text)
    cross join lateral (
        select l.workspace from grns.mail l
        where l.seq = case when starts_with(i.owner, 'mail-') then substr(i.owner, 6)::bigint end
        for key share
    ) as l
    where exists (select from moved)
),
said as materialized (
    select t.owner, t.workspace, string_to_array(t.text collate "C", ' ') as words,
        coalesce((select x.words from grns.texts x where x.owner = t.owner), '{}') as before
    from there t
),
changed as materialized (
    select s.* from said s where s.words <> s.before
),
gone as (
    delete from grns.words w
    where w.ctid = any(array(
        select g.ctid
        from (select c.owner, c.workspace, c.words, unnest(c.before) as word from changed c) as b
        cross join lateral (  -- the offset has it looked up for each
            select g.ctid from grns.words g
            where g.workspace = b.workspace and g.word = b.word and g.owner = b.owner
            offset 0
        ) as g
        where b.word <> all(b.words)
    ))
),
words as (
    insert into grns.words (workspace, word, owner)
    select n.workspace, n.word, n.owner
    from (select c.owner, c.workspace, c.before, unnest(c.words) as word from changed c) as n
    where n.word <> all(n.before)
    order by n.workspace, n.word, n.owner
    on conflict do nothing
),
emptied as (
    delete from grns.texts x where x.owner = any(array(select c.owner from changed c where c.words = '{}'))
),
texts as (
    insert into grns.texts (owner, workspace, words)
    select c.owner, c.workspace, c.words from changed c where c.words <> '{}'
    on conflict (owner) do update set words = excluded.words
)
select m.low from moved m
