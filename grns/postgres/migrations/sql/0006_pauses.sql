-- What is paused: no claim takes of it. Each statement that claims looks here, once; there are few rows.
create table grns.pauses (
    workspace  text collate "C" not null,
    agent_type text collate "C" not null,
    task_type  text collate "C" not null default '',  -- '' is all of the pool
    paused_at  timestamptz not null default now(),
    paused_by  text not null,
    reason     text,
    until      timestamptz,                           -- null: until somebody resumes it
    primary key (workspace, agent_type, task_type)
);

-- Lists of pools walk through the workers by agent type. A heartbeat changes nothing that this index holds.
alter table grns.agents
    add column running integer not null default 0;    -- tasks, as of the last heartbeat
create index agents_alive on grns.agents (workspace, agent_type) where stopped_at is null;
-- Agents over HTTP, of which there may be many, apart from processes: reapers look at the leases of these.
create index agents_over_http on grns.agents (workspace) where pid = 0;
create index agents_with_process on grns.agents (agent_id) where pid <> 0 and stopped_at is null;

insert into grns.tenant_rights (relation, rights) values ('pauses', 'select, insert, update, delete');
select grns.isolate_workspaces();
