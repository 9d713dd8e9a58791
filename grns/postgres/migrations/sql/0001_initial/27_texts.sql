-- The words of tasks and of mail, for full-text search: of what a task is called and why it failed, of its payload where the
-- settings say so, and of the types and payloads of messages. The text indexer writes them behind the log; what says nothing has no
-- row. The owner is the id of a task, or `mail-` and the number of a message, as grns.mail_owner has it.
create table grns.texts (
    owner     text collate "C" primary key,
    workspace text collate "C" not null,
    words     text[] collate "C" not null                -- sorted
);

-- The owners of each word: ids of tasks sort by time, so a list of them, latest first, is read from the end of a range. Not an index
-- on the array: tenants could not use it, because its operator may run only on rows that a policy has let through.
create table grns.words (
    workspace text collate "C" not null,
    word      text collate "C" not null,
    owner     text collate "C" not null,
    primary key (workspace, word, owner)
);

-- Up to which number the log is indexed.
create table grns.text_cursor (
    is_one boolean primary key default true check (is_one),
    low    bigint not null default 0
) with (fillfactor = 10);
insert into grns.text_cursor default values;

-- The owner of the words of a message: owners sort as numbers do.
create function grns.mail_owner(seq bigint) returns text language sql immutable as $$
    select 'mail-' || lpad(seq::text, 19, '0') collate "C"
$$;

-- The words of a message go with it; those of a task, see delete_tasks.sql.
create function grns.forget_mail_words() returns trigger language plpgsql as $$
begin
    with gone as (
        delete from grns.texts x where x.owner = grns.mail_owner(old.seq) returning x.owner, x.workspace, x.words
    )
    delete from grns.words w
    using gone g
    where w.workspace = g.workspace and w.word = any(g.words) and w.owner = g.owner;
    return null;
end
$$;
create trigger mail_words_gone after delete on grns.mail for each row execute function grns.forget_mail_words();
