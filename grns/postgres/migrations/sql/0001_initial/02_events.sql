-- Events: log, outbox, history.
-- The default of `seq` takes the transaction's id before the number: a reader that sees a number
-- missing can then tell, from a snapshot, when its transaction has ended (see the relay).
create sequence grns.events_seq as bigint cache 1;

create table grns.events (
    seq          bigint not null
        default (case when pg_current_xact_id() is not null then nextval('grns.events_seq') end),
    version      integer not null,             -- of the task, after the transition
    message_id   uuid not null default gen_random_uuid(),
    workspace    text not null,
    task_id      text collate "C",
    kind         text not null,
    attempt      integer,
    -- Of an event that queues a task: where its command goes, as <agent_type>.p<priority>. The relay publishes both. A command has
    -- a row of its own only where a worker passes one on from the shared execute subject.
    route        text,
    trace_id     text not null,
    causation_id uuid,
    payload      json not null,
    -- Not now(), which is when the transaction began: searches by time rely on the order of the numbers.
    created_at   timestamptz not null default clock_timestamp(),
    was          "char",                       -- the status before: see LETTERS in grns/model/task.py
    task_type    text,                         -- if known: saves the stats aggregator a look at the task
    actor        text,                         -- who caused it, such as cli:ann@desk; null: grns itself
    primary key (seq)
) partition by range (seq);
-- Transitions apart from the rest: a task may tell of its progress each second.
create index events_task on grns.events (task_id, starts_with(kind, 'evt.task.'));

create view grns.log_partitions as
select c.relname::text as name,
       substring(pg_get_expr(c.relpartbound, c.oid) from $re$FROM \('(\d+)'\)$re$)::bigint as lower_seq,
       substring(pg_get_expr(c.relpartbound, c.oid) from $re$TO \('(\d+)'\)$re$)::bigint as upper_seq,
       i.inhdetachpending as is_detaching
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'grns.events'::regclass;

-- A partition is made as a plain table and attached: that waits for no writer.
create function grns.add_log_partition(rows_per_partition bigint) returns text language plpgsql as $$
declare
    lower_seq bigint;
    upper_seq bigint;
    name text;
begin
    perform pg_advisory_xact_lock(hashtext('grns.events'));  -- one janitor at a time
    lower_seq := coalesce((select max(p.upper_seq) from grns.log_partitions p), 1);
    upper_seq := lower_seq + rows_per_partition;
    name := 'events_' || lpad(lower_seq::text, 19, '0');
    execute format('create table grns.%I (like grns.events including defaults including indexes)', name);
    execute format('alter table grns.events attach partition grns.%I for values from (%s) to (%s)',
                   name, lower_seq, upper_seq);
    return name;
end
$$;
select grns.add_log_partition(2000000), grns.add_log_partition(2000000),
       grns.add_log_partition(2000000), grns.add_log_partition(2000000);
