-- What attempts have used: tokens, time and money. An item that is told twice is there once.
create table grns.usage (
    task_id            text collate "C" not null,
    attempt            integer not null,
    item               text collate "C" not null,    -- what it was used for, such as `draft`
    workspace          text collate "C" not null,
    agent_type         text not null,
    task_type          text not null,
    model              text not null default '',
    input_tokens       bigint not null default 0,    -- with those that were read from a cache or written to it
    output_tokens      bigint not null default 0,    -- with those of reasoning
    cache_read_tokens  bigint not null default 0,
    cache_write_tokens bigint not null default 0,
    reasoning_tokens   bigint not null default 0,
    compute_seconds    double precision not null default 0,
    cost               numeric(14, 8) not null default 0,  -- US dollars
    cost_source        text not null,
    at                 timestamptz not null default statement_timestamp(),
    is_summed          boolean not null default false,     -- it is in grns.usage_days
    primary key (task_id, attempt, item),
    constraint usage_cost_source check (cost_source in ('reported', 'priced', 'none'))
);
create index usage_unsummed on grns.usage (at) where not is_summed;

-- The same for each day (UTC), pool, task type and model. The janitor adds to it, each item once.
create table grns.usage_days (
    workspace          text collate "C" not null,
    day                date not null,
    agent_type         text collate "C" not null,
    task_type          text collate "C" not null,
    model              text collate "C" not null,
    items              bigint not null,
    input_tokens       bigint not null,
    output_tokens      bigint not null,
    cache_read_tokens  bigint not null,
    cache_write_tokens bigint not null,
    reasoning_tokens   bigint not null,
    compute_seconds    double precision not null,
    cost               numeric(20, 8) not null,
    unpriced_items     bigint not null,                    -- of which no cost is known
    primary key (workspace, day, agent_type, task_type, model)
);

-- What tasks may use in a day or a month (UTC). The scheduler looks every two seconds, and notes what was used.
create table grns.budgets (
    workspace      text collate "C" not null,
    name           text collate "C" not null,
    agent_type     text collate "C" not null default '',  -- '' is all of the workspace
    period         text not null,
    max_cost       numeric(20, 8),                        -- US dollars
    max_tokens     bigint,
    action         text not null,
    begins_on      date,                                  -- the first day of the period that these are about
    used_cost      numeric(20, 8) not null default 0,
    used_tokens    bigint not null default 0,
    extra_cost     numeric(20, 8) not null default 0,     -- what was allowed beyond it, in this period
    extra_tokens   bigint not null default 0,
    exceeded_since timestamptz,
    looked_at      timestamptz,
    updated_at     timestamptz not null default now(),
    updated_by     text not null,
    primary key (workspace, name),
    constraint budgets_period check (period in ('day', 'month')),
    constraint budgets_action check (action in ('warn', 'refuse', 'ask')),
    constraint budgets_amount check (num_nonnulls(max_cost, max_tokens) > 0)
) with (fillfactor = 50);
create index budgets_refusing on grns.budgets (workspace) where exceeded_since is not null and action = 'refuse';

-- The first day of the present period.
create function grns.period_begin(period text) returns date language sql stable as $$
    select date_trunc(period, now() at time zone 'UTC')::date
$$;
