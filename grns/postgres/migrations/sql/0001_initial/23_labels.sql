-- What people say of a task, and how it is retried if not as its handler says. Only a task of which something is said has a row: the
-- others pay nothing for it.
create table grns.labels (
    task_id     text collate "C" primary key,
    workspace   text collate "C" not null,
    title       text,
    description text,
    tags        text[] not null default '{}',
    metadata    jsonb,
    created_by  text collate "C",
    backoff     jsonb  -- base_seconds, max_seconds and curve, as of grns.Backoff
);
create index labels_creator on grns.labels (workspace, created_by, task_id) where created_by is not null;

-- The tasks of each tag: ids sort by time, so a list of them, latest first, is read from the end of a range.
create table grns.tags (
    workspace text collate "C" not null,
    tag       text collate "C" not null,
    task_id   text collate "C" not null,
    primary key (workspace, tag, task_id)
);

-- What a submission says of its task, out of its fields; null: nothing.
create function grns.labels_of(submission jsonb) returns jsonb language sql immutable as $$
    select case when submission ?| array['title', 'description', 'tags', 'metadata', 'created_by', 'backoff'] then (
        select jsonb_object_agg(e.key, e.value)
        from jsonb_each(submission) as e (key, value)
        where e.key in ('title', 'description', 'tags', 'metadata', 'created_by', 'backoff') and e.value <> 'null' and (e.key <> 'tags' or e.value <> '[]')
    ) end
$$;

-- Whether a value is a backoff: its seconds are 0 to 366 days.
create function grns.is_backoff(said jsonb) returns boolean language sql immutable as $$
    select said is null or (jsonb_typeof(said) = 'object' and said - array['base_seconds', 'max_seconds', 'curve'] = '{}'
        and jsonb_typeof(said -> 'base_seconds') = 'number' and (said ->> 'base_seconds')::numeric between 0 and 31622400
        and jsonb_typeof(said -> 'max_seconds') = 'number' and (said ->> 'max_seconds')::numeric between 0 and 31622400
        and said ->> 'curve' in ('exponential', 'polynomial')) is true
$$;

-- The delay behind so many counted attempts, as of grns.Backoff; null: the task says none.
create function grns.backoff_seconds(task_id text, attempts integer) returns double precision language sql volatile as $$
    select least(
        (l.backoff ->> 'max_seconds')::double precision,
        (l.backoff ->> 'base_seconds')::double precision * case l.backoff ->> 'curve'
            when 'polynomial' then greatest(attempts, 1)::double precision ^ 2
            else 2::double precision ^ (least(greatest(attempts, 1), 60) - 1)
        end
    ) * (0.8 + 0.4 * random())
    from grns.labels l
    where l.task_id = backoff_seconds.task_id and l.backoff is not null
$$;

-- Whether a value is what grns/model/labels.py allows.
create function grns.are_labels(said jsonb) returns boolean language sql immutable as $$
    select (jsonb_typeof(said) = 'object'
        and said - array['title', 'description', 'tags', 'metadata', 'created_by', 'backoff'] = '{}'
        and coalesce(jsonb_typeof(said -> 'title') = 'string' and length(said ->> 'title') <= 255
            and said ->> 'title' !~ '[[:cntrl:]]', true)
        and coalesce(jsonb_typeof(said -> 'description') = 'string' and length(said ->> 'description') <= 10000, true)
        and coalesce(jsonb_typeof(said -> 'created_by') = 'string' and length(said ->> 'created_by') between 1 and 255
            and said ->> 'created_by' !~ '[[:cntrl:]]', true)
        and coalesce(jsonb_typeof(said -> 'metadata') = 'object' and octet_length((said -> 'metadata')::text) <= 32768, true)
        and coalesce(grns.is_backoff(said -> 'backoff'), true)
        and coalesce(jsonb_typeof(said -> 'tags') = 'array', true)
        and case when jsonb_typeof(said -> 'tags') = 'array' then jsonb_array_length(said -> 'tags') <= 32 and not exists (
            select from jsonb_array_elements_text(said -> 'tags') as t (tag)
            where t.tag is null or t.tag !~ '^[A-Za-z0-9_.:/@-]{1,100}$') else true end) is true
$$;

-- Keeps what is said of tasks that were created just now: arrays of their ids, of their workspaces and of labels (null: nothing).
create function grns.put_labels(ids text[], workspaces text[], labels jsonb[]) returns void language plpgsql as $$
begin
    if exists (select from unnest(labels) as l (said) where l.said is not null and not grns.are_labels(l.said)) then
        raise exception 'grns: a title has up to 255 characters in one line, a description up to 10,000; tags are up to 32 of'
            ' A-Z a-z 0-9 _ . : / @ -, 100 each; metadata is a JSON object of up to 16 KiB; created_by has 1 to 255 characters;'
            ' backoff has base_seconds and max_seconds, up to 366 days each, and a curve, exponential or polynomial'
            using errcode = 'invalid_parameter_value', detail = 'bad_submission';
    end if;
    insert into grns.labels (task_id, workspace, title, description, tags, metadata, created_by, backoff)
    select w.id, w.workspace, nullif(w.said ->> 'title', ''), nullif(w.said ->> 'description', ''),
        array(select distinct t.tag collate "C" from jsonb_array_elements_text(w.said -> 'tags') as t (tag) order by 1),
        w.said -> 'metadata', w.said ->> 'created_by', w.said -> 'backoff'
    from unnest(ids, workspaces, labels) as w (id, workspace, said)
    where w.said is not null;
    insert into grns.tags (workspace, tag, task_id)
    select distinct w.workspace, t.tag, w.id
    from unnest(ids, workspaces, labels) as w (id, workspace, said)
    cross join lateral jsonb_array_elements_text(w.said -> 'tags') as t (tag);
end
$$;

-- Changes what is said of a task, whatever its status: it is no transition, and its row stays as it is. `changes` has the fields
-- to set; an empty text, array or object removes one. Returns whether there is such a task.
create function grns.label_task(
    task_id text, changes jsonb, workspace text default 'default', actor text default null, reason text default null
) returns boolean language plpgsql as $$
#variable_conflict use_variable
declare
    task grns.tasks;
    before jsonb;
    after jsonb;
begin
    select t.* into task from grns.tasks t where t.id = task_id and t.workspace = workspace for key share;  -- it is not deleted meanwhile
    if not found then
        return false;
    end if;
    insert into grns.labels (task_id, workspace) values (task_id, workspace) on conflict do nothing;
    select grns.labels_of(to_jsonb(l)) into before from grns.labels l where l.task_id = task_id for no key update;
    before := coalesce(before, '{}');
    after := (select coalesce(jsonb_object_agg(e.key, e.value), '{}') from jsonb_each(before || changes) as e (key, value)
        where e.value not in ('""', '[]', '{}', 'null'));
    if not grns.are_labels(changes) or changes ?| array['created_by', 'backoff'] then
        raise exception 'grns: a title has up to 255 characters in one line, a description up to 10,000; tags are up to 32 of'
            ' A-Z a-z 0-9 _ . : / @ -, 100 each; metadata is a JSON object of up to 16 KiB'
            using errcode = 'invalid_parameter_value', detail = 'bad_edit';
    end if;
    update grns.labels l
    set title = after ->> 'title', description = after ->> 'description', metadata = after -> 'metadata',
        tags = array(select distinct t.tag collate "C" from jsonb_array_elements_text(after -> 'tags') as t (tag) order by 1)
    where l.task_id = task_id;
    delete from grns.tags g using grns.labels l
    where l.task_id = task_id and g.workspace = workspace and g.task_id = task_id and g.tag <> all(l.tags)
        and g.tag in (select jsonb_array_elements_text(before -> 'tags'));
    insert into grns.tags (workspace, tag, task_id)
    select workspace, t.tag, task_id from jsonb_array_elements_text(after -> 'tags') as t (tag)
    on conflict do nothing;
    insert into grns.events (version, message_id, workspace, task_id, kind, attempt, trace_id, causation_id, actor, payload)
    values (task.version, gen_random_uuid(), workspace, task_id, 'evt.task.changed', task.attempt, task.trace_id,
        task.last_message_id, actor,
        json_build_object('task_id', task_id, 'task_type', task.task_type, 'status', task.status,
            'fields', (select json_agg(c.key order by c.key) from jsonb_object_keys(changes) as c (key)),
            'priority', task.priority, 'actor', actor, 'reason', reason,
            'before', (select coalesce(jsonb_object_agg(b.key, b.value), '{}') from jsonb_each(before) as b (key, value)
                where changes ? b.key)));
    return true;
end
$$;
