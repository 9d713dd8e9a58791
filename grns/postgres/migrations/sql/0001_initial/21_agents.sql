-- Agents by name: who they are, whether they live, and what they are told to do. An agent is there while one of its workers is:
-- its latest life.
create table grns.agents (
    workspace                  text collate "C" not null,
    name                       text collate "C" not null,
    agent_type                 text collate "C" not null,  -- its pool
    title                      text,
    model                      text,
    capabilities               text[] not null default '{}',
    max_concurrent_tasks       integer not null default 1,
    heartbeat_interval_seconds double precision not null default 10,
    stale_threshold_seconds    double precision not null default 100,
    metadata                   json,
    created_at                 timestamptz not null default now(),
    updated_at                 timestamptz not null default now(),
    -- Its latest life, and what that has said of itself.
    agent_id                   text,                         -- null: it has never been there
    started_at                 timestamptz,
    last_seen_at               timestamptz,
    stopped_at                 timestamptz,
    is_blocked                 boolean not null default false,
    running                    integer not null default 0,  -- tasks, as of the last heartbeat
    current_task_id            text,
    progress_percent           double precision,
    current_step               text,
    memory_mb                  double precision,
    cpu_percent                double precision,
    -- An order holds for lives that had begun before it: `drain` to end once its tasks have ended, `stop` to end now.
    ordered                    text,
    ordered_at                 timestamptz,
    ordered_by                 text,
    order_reason               text,
    -- What the log knows: `note_presence.sql` compares.
    known_health               text not null default 'absent',
    known_agent_id             text,
    primary key (workspace, name),
    constraint agents_order check (ordered in ('drain', 'stop') and ordered_at is not null or ordered is null),
    constraint agents_seconds check (heartbeat_interval_seconds > 0 and stale_threshold_seconds >= 3 * heartbeat_interval_seconds)
) with (fillfactor = 50);
-- A heartbeat changes no column that these indexes hold.
create index agents_of_type on grns.agents (workspace, agent_type, name);
create index agents_ordered on grns.agents (workspace, name) where ordered is not null;

-- The health of an agent, by the age of its last heartbeat.
create function grns.agent_health(agent grns.agents, clock timestamptz) returns text language sql immutable as $$
    select case
        when agent.agent_id is null then 'absent'
        when agent.stopped_at is not null then 'stopped'
        when agent.last_seen_at > clock - 3 * agent.heartbeat_interval_seconds * interval '1 second' then 'healthy'
        when agent.last_seen_at > clock - agent.stale_threshold_seconds * interval '1 second' then 'degraded'
        when agent.last_seen_at > clock - 3 * agent.stale_threshold_seconds * interval '1 second' then 'stale'
        else 'dead'
    end
$$;

-- What an agent is told to do now; null: to work.
create function grns.agent_order(agent grns.agents) returns text language sql immutable as $$
    select case when agent.ordered_at >= agent.started_at then agent.ordered end
$$;

-- Whether a heartbeat begins a new life of an agent.
create function grns.begins_life(agent grns.agents, life text, clock timestamptz) returns boolean language sql immutable as $$
    select agent.agent_id is distinct from life or agent.stopped_at is not null or grns.agent_health(agent, clock) = 'dead'
$$;
