-- Blobs: bytes of any kind, kept once in a workspace, by their sha256. A document refers to one by {"$blob": "sha256-…"}.
create table grns.blobs (
    workspace  text collate "C" not null,
    sha256     text collate "C" not null,             -- 64 hex digits
    size       bigint not null check (size = octet_length(content)),
    media_type text,
    content    bytea,
    object     text collate "C",                      -- its name in the blob store, where its content is there
    created_at timestamptz not null default statement_timestamp(),
    used_at    timestamptz not null default statement_timestamp(),  -- when it was put last
    primary key (workspace, sha256),
    constraint blobs_place check (num_nonnulls(content, object) = 1),
    constraint blobs_object check (object ~ ('^' || workspace || '/[0-9a-f]{2}/' || sha256 || '-[0-9a-f]{16}$'))
);
create unique index blobs_by_object on grns.blobs (object) where object is not null;
alter table grns.blobs alter column content set storage external;  -- a part of it is read without the rest
create index blobs_made on grns.blobs (workspace, created_at, sha256) include (size);

-- Objects of the blob store that no blob has: each is noted before it is written, and again when its blob is deleted. The janitor
-- dooms those of which nothing came within a day, and deletes doomed ones an hour later: a write that was given up may still arrive.
-- Each upload has a name of its own, so that no deletion meets a later upload.
create table grns.blob_objects (
    object       text collate "C" primary key,
    workspace    text collate "C" not null,
    size         bigint not null,
    is_doomed    boolean not null default false,      -- it cannot become a blob's any more
    delete_after timestamptz not null,
    constraint blob_objects_name check (object ~ ('^' || workspace || '/[0-9a-f]{2}/[0-9a-f]{64}-[0-9a-f]{16}$'))
);
create index blob_objects_due on grns.blob_objects (is_doomed, delete_after);

-- Who refers to a blob: a task (by its id), a message (`mail-` and its number) or a schedule (`schedule-` and its name). The rows are
-- written with the document, and keep the blob; see the triggers below.
create table grns.blob_refs (
    owner     text collate "C" not null,
    workspace text collate "C" not null,
    sha256    text collate "C" not null,
    primary key (owner, workspace, sha256),
    constraint blob_refs_blob foreign key (workspace, sha256) references grns.blobs
);
create index blob_refs_of on grns.blob_refs (workspace, sha256);

-- Refuses what would exceed the size of all blobs of a workspace, with those that are being written.
create function grns.check_room_for_blob(workspace text, size bigint, most_bytes bigint, object text default null)
returns void language plpgsql as $$
#variable_conflict use_variable
begin
    if size + (select coalesce(sum(b.size), 0) from grns.blobs b where b.workspace = workspace)
        + (select coalesce(sum(o.size), 0) from grns.blob_objects o
            where o.workspace = workspace and not o.is_doomed and o.object is distinct from object) > most_bytes
    then
        raise exception 'grns: the blobs of workspace % may have % bytes together', workspace, most_bytes
            using errcode = 'invalid_parameter_value', detail = 'blobs_full';
    end if;
end
$$;

-- Refuses an invalid media type.
create function grns.check_media_type(media_type text) returns void language plpgsql as $$
begin
    if media_type !~ '^[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}$' then
        raise exception 'grns: a media type is one such as text/plain'
            using errcode = 'invalid_parameter_value', detail = 'bad_blob';
    end if;
end
$$;

-- Keeps a blob whose bytes are `content`, or are in the blob store as `object`, and returns the reference to it. The bytes of one that
-- is there already stay where they are, and the object is doomed.
create function grns.keep_blob(
    workspace text, digest text, size bigint, media_type text, content bytea, object text, most_bytes_of_workspace bigint
) returns jsonb language plpgsql as $$
#variable_conflict use_variable
declare
    kept record;
begin
    perform grns.check_media_type(media_type);
    update grns.blobs b set used_at = statement_timestamp()
    where b.workspace = workspace and b.sha256 = digest
    returning b.size, b.media_type, b.object into kept;
    if not found then
        perform grns.check_room_for_blob(workspace, size, most_bytes_of_workspace, object);
        insert into grns.blobs as b (workspace, sha256, size, media_type, content, object)
        values (workspace, digest, size, media_type, content, object)
        on conflict on constraint blobs_pkey do update set used_at = statement_timestamp()
        returning b.size, b.media_type, b.object into kept;
    end if;
    if object is not null and kept.object is not distinct from object then
        delete from grns.blob_objects o where o.object = object and o.workspace = workspace and not o.is_doomed;
        if not found then
            raise exception 'grns: the object was given up before its blob was kept: put it again'
                using errcode = 'serialization_failure';
        end if;
    else
        update grns.blob_objects o set is_doomed = true, delete_after = now() + interval '1 hour'
        where o.object = object and o.workspace = workspace;
    end if;
    return jsonb_strip_nulls(jsonb_build_object('$blob', 'sha256-' || digest, 'size', kept.size, 'type', kept.media_type));
end
$$;

-- Keeps bytes in Postgres, and returns the reference to them. The same bytes are kept once: putting them again is safe.
-- It is called in a transaction of yours, or alone: a blob that nothing refers to is kept for a day.
create function grns.put_blob(
    content bytea, media_type text default null, workspace text default 'default',
    most_bytes bigint default 67108864, most_bytes_of_workspace bigint default 1073741824
) returns jsonb language plpgsql as $$
begin
    if content is null or octet_length(content) > most_bytes then
        raise exception 'grns: a blob has up to % bytes', most_bytes
            using errcode = 'invalid_parameter_value', detail = 'too_large';
    end if;
    return grns.keep_blob(workspace, encode(sha256(content), 'hex'), octet_length(content), media_type, content, null,
        most_bytes_of_workspace);
end
$$;

-- Notes which blobs a row refers to. $1 what its name as an owner begins with, $2 the column with the rest of it
create function grns.refer_to_blobs() returns trigger language plpgsql as $$
declare
    said constant jsonb := to_jsonb(new);
    digests text[];
    known integer;
begin
    digests := array(
        select distinct substr(r.reference #>> '{}', 8)
        from jsonb_path_query(said, '$.**."$blob" ? (@.type() == "string")') as r (reference)
        where r.reference #>> '{}' ~ '^sha256-[0-9a-f]{64}$');
    -- Locked in one order, and until the row is committed: they are not deleted meanwhile.
    perform from grns.blobs b where b.workspace = new.workspace and b.sha256 = any(digests) order by b.sha256 for key share;
    get diagnostics known = row_count;
    if known < cardinality(digests) then
        raise exception 'grns: it refers to % blobs, and workspace % has % of them: put them first',
            cardinality(digests), new.workspace, known using errcode = 'invalid_parameter_value', detail = 'blob_missing';
    end if;
    insert into grns.blob_refs (owner, workspace, sha256)
    select tg_argv[0] || (said ->> tg_argv[1]), new.workspace, d.sha256 from unnest(digests) as d (sha256)
    on conflict do nothing;
    return null;
end
$$;

-- Forgets the references of a row that is deleted.
create function grns.forget_blob_refs() returns trigger language plpgsql as $$
begin
    delete from grns.blob_refs r
    where r.owner = tg_argv[0] || (to_jsonb(old) ->> tg_argv[1]) and r.workspace = old.workspace;
    return new;  -- null where the row is deleted
end
$$;

-- A document without references pays for a look at its size, or, if it has the size of one, for a search. References of a task go
-- with it, see delete_tasks.sql.
create trigger tasks_blobs after insert on grns.tasks for each row
    when (pg_column_size(new.payload) > 80 and new.payload @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'id');
create trigger tasks_blobs_edited after update of payload on grns.tasks for each row
    when (pg_column_size(new.payload) > 80 and new.payload @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'id');
create trigger tasks_blobs_ended after update of result on grns.tasks for each row
    when (pg_column_size(new.result) > 80 and new.result @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'id');
create trigger steps_blobs after insert or update of value on grns.steps for each row
    when (pg_column_size(new.value) > 80 and new.value @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'task_id');
create trigger signals_blobs after insert on grns.signals for each row
    when (pg_column_size(new.value) > 80 and new.value @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'task_id');
create trigger progress_blobs after insert or update of checkpoint on grns.progress for each row
    when (pg_column_size(new.checkpoint) > 80 and new.checkpoint @? '$.**."$blob"')
    execute function grns.refer_to_blobs('', 'task_id');
-- A schedule refers to what its payload says now.
create trigger schedules_blobs_before before update of payload on grns.schedules for each row
    execute function grns.forget_blob_refs('schedule-', 'name');
create trigger schedules_blobs after insert or update of payload on grns.schedules for each row
    when (pg_column_size(new.payload) > 80 and new.payload @? '$.**."$blob"')
    execute function grns.refer_to_blobs('schedule-', 'name');
create trigger schedules_blobs_gone after delete on grns.schedules for each row
    execute function grns.forget_blob_refs('schedule-', 'name');
create trigger mail_blobs after insert on grns.mail for each row
    when (pg_column_size(new.payload) > 80 and new.payload::jsonb @? '$.**."$blob"')
    execute function grns.refer_to_blobs('mail-', 'seq');
create trigger mail_blobs_gone after delete on grns.mail for each row
    when (pg_column_size(old.payload) > 80) execute function grns.forget_blob_refs('mail-', 'seq');
