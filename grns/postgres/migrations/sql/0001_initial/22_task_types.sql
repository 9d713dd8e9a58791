-- Task types of a pool that are published (clients of MCP get each as a tool), or have secrets in their payloads. Workers put
-- them here when they start.
create table grns.task_types (
    workspace      text collate "C" not null,
    agent_type     text collate "C" not null,
    task_type      text collate "C" not null,
    description    text,
    payload_schema json not null,
    is_published   boolean not null default true,
    secret_paths   text[] not null default '{}',
    published_at   timestamptz not null default now(),
    primary key (workspace, agent_type, task_type)
);
