-- Task types that a pool publishes: clients of MCP get each as a tool. Workers put them here when they start.
create table grns.task_types (
    workspace      text collate "C" not null,
    agent_type     text collate "C" not null,
    task_type      text collate "C" not null,
    description    text,
    payload_schema json not null,
    published_at   timestamptz not null default now(),
    primary key (workspace, agent_type, task_type)
);
