-- What handlers log. Of the latest ten attempts of a task, about a thousand lines each: see record_task_lines.sql.
create table grns.task_lines (
    task_id   text collate "C" not null,
    attempt   integer not null,
    number    bigint not null,      -- grows within the attempt: a line that is sent twice is there once
    workspace text collate "C" not null,
    at        timestamptz not null,
    level     smallint not null,    -- as of Python: 10 DEBUG, 20 INFO, 30 WARN, 40 ERROR, 50 CRITICAL
    message   text not null,
    fields    json,
    primary key (task_id, attempt, number)
);
