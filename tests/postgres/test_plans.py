"""How the hot statements find their rows, with thousands of running tasks and with statistics that lie.

A guard that says `status = 'running'` invites every partial index of running rows, and a planner without
statistics the whole table: both cost more the more tasks there are. See point 1 of the facts on Postgres.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import asyncpg
import pytest

from grns.dev.servers import LocalPostgres
from grns.model.filter import parse
from grns.model.json import DEFAULT_LIMITS
from grns.model.submission import submission
from grns.model.task import STATUS_AFTER
from grns.outbox.consumer import LogCursor
from grns.postgres import query
from grns.postgres.database import Connection, Database, Session, run
from grns.postgres.statements import statement
from grns.runtime.leader import LeaderLease
from grns.stats import counts as count
from grns.stats.issues import STATES
from grns.tasks import search as task_page
from grns.tasks.index_scan import DUE, ENDED, LATEST, QUEUED, RUNNING, IndexScan, Key, plans
from grns.tasks.search import SearchQuery, count_statement, page_statement
from grns.tasks.submit import columns, prepare
from tests.support.store import new_database

ROWS = 3000
FEW = 20  # what the statistics count beside the rows that were asked for: each entry of an index once more
PARTITION = f"events_{1:019}"
OF_TASK = f"{PARTITION}_task_id_starts_with_idx"
EMPTY, STALE, FRESH = "never analyzed", "analyzed when empty", "analyzed"

# Their `id` decides which rows they touch: each look at the tasks goes through the primary key.
BY_ID = (
    "claim", "renew", "finish", "release", "cancel", "redrive", "dispatch", "explain_unclaimed",
    "read_claims", "read_statuses", "read_tasks", "delete_tasks", "next_task", "redrive_batch",
    "discard_batch", "cancel_batch", "read_payloads", "judge_canary", "discard_tasks", "edit_task",
    "read_texts", "write_texts", "read_attempt_secrets",
)  # fmt: skip
# These change the row where they have locked it, without a second look at the index.
IN_PLACE = ("claim", "finish", "claim_next")
CLAIMING = ("claim", "claim_next")
# These look for rows: by the index made for them, and then change each by its id.
LOOKING = {"claim_next": "tasks_ready", "reap": "tasks_lease", "promote": "tasks_due"}
BY_NUMBER = (
    "read_log", "read_numbers", "read_stretch", "read_log_age", "read_events", "list_events", "read_pulse",
    "read_texts",
)  # fmt: skip
BY_TASK = ("read_story", "read_history", "read_finishes", "read_claims")
# These run for tenants, too: what confines them has to leave the way to the rows as it is.
FOR_TENANTS = ("cancel", "redrive", "read_tasks", "read_statuses")
OF_KEYS = {
    "check_key": ["api_keys_pkey"],
    "read_key": ["api_keys_pkey"],
    "note_key_use": ["api_keys_pkey", "api_keys_pkey"],
    "revoke_key": ["api_keys_pkey"],
    "list_keys": ["api_keys_pkey", "api_keys_pkey", "api_keys_workspace"],
}

_FILL = rf"""
    insert into grns.tasks (id, workspace, task_type, agent_type, priority, status, payload, owner_agent_id,
        lease_id, lease_until, attempt, attempt_limit, next_attempt_at, idempotency_key, trace_id,
        last_message_id, queued_at, finished_at, waits_for)
    select 'gr-' || s.status || '-' || n, 'default', 'noop', 'worker', n % 4, s.status, '{{}}',
        case s.status when 'running' then 'worker-' || n % 7 end,
        case s.status when 'running' then gen_random_uuid() end,
        case s.status when 'running' then now() + n * interval '1 ms' end,
        1, 3, case when s.status in ('retry_wait', 'waiting') then now() + n * interval '1 s' end,
        case when n % 3 = 0 then s.status || n end, 'trace', gen_random_uuid(),
        case s.status when 'queued' then now() - n * interval '1 s' end,
        case when s.status in ('succeeded', 'dead') then now() end, case s.status when 'waiting' then 'time' end
    from generate_series(1, {ROWS}) as n,
        unnest(array['running', 'queued', 'retry_wait', 'waiting', 'succeeded', 'dead']) as s (status);
    insert into grns.events (version, workspace, task_id, kind, trace_id, payload)
    select 1, 'default', t.id, 'evt.task.queued', 'trace', '{{}}' from grns.tasks t;
    insert into grns.issues (workspace, fingerprint, error_class, message, sample_task_id, first_seen, last_seen, total,
        open_count, state)
    select 'default', n, 'ValueError', 'no', 'gr-1', now(), now() - n * interval '1 s', 1, 1,
        (array['new', 'acknowledged', 'ignored', 'resolved', 'regressed'])[n % 5 + 1]
    from generate_series(1, {ROWS}) as n;
    insert into grns.issue_hours select 'default', n, now(), 1 from generate_series(1, {ROWS}) as n;
    insert into grns.issue_facets select 'default', n, 'worker', 'worker-1', 1 from generate_series(1, {ROWS}) as n;
    insert into grns.task_minutes
    select 'default', now() - n * interval '1 min', 'noop', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1
    from generate_series(1, {ROWS}) as n;
    insert into grns.task_counts select 'default', 'type-' || n, 'queued', 1 from generate_series(1, {ROWS}) as n;
    insert into grns.operation_tasks select n % 7, 'gr-dead-' || n, 1 from generate_series(1, {ROWS}) as n;
    insert into grns.workspaces (workspace) select 'workspace-' || n from generate_series(1, {ROWS}) as n;
    insert into grns.api_keys (id, workspace, name, secret_sha256, scopes)
    select lpad(n::text, 12, '0'), 'workspace-' || n, 'key', sha256(n::text::bytea), '{{read}}'
    from generate_series(1, {ROWS}) as n;
    insert into grns.webhooks (id, workspace, url, kinds, pattern, is_enabled, since_seq, created_by)
    select 'wh-' || n, 'workspace-' || n % 30, '', '{{}}', '^evt\.task\.dead$', n % 2 = 0, 1, 'me'
    from generate_series(1, {ROWS}) as n;
    insert into grns.webhook_secrets (webhook_id, workspace, secret)
    select 'wh-' || n, 'workspace-' || n % 30, '' from generate_series(1, {ROWS}) as n;
    insert into grns.webhook_deliveries (webhook_id, seq, workspace, message_id, kind, state, due_at, ended_at, created_at)
    select 'wh-' || w, n, 'workspace-1', gen_random_uuid(), 'evt.task.dead', s.state,
        case s.state when 'pending' then now() - n * interval '1 ms' end,
        case s.state when 'failed' then now() end, now() - n * interval '1 s'
    from generate_series(1, {ROWS}) as n, unnest(array['2', '4'], array['pending', 'failed']) as s (w, state);
    insert into grns.dead_letters (reason, detail, subject, stream, stream_seq, delivery_count, headers, body,
        body_sha256, state)
    select 'bad_json', '', 'cmd.task.execute.v1', 'GRNS_CMD', n, 1, '{{}}', '', '',
        case when n % 2 = 0 then 'new' else 'discarded' end
    from generate_series(1, {ROWS}) as n;
    insert into grns.mail (id, workspace, to_agent, type, payload, expires_at)
    select gen_random_uuid(), 'default', 'agent-' || n, 'x', '{{}}', now() + interval '1 h'
    from generate_series(1, {ROWS}) as n;
    insert into grns.steps (task_id, name, workspace, kind, value, attempt)
    select 'gr-running-' || n / 3, 'step-' || n, 'default', 'step', '1', 1 from generate_series(1, {ROWS}) as n;
    insert into grns.progress (task_id, workspace, checkpoint)
    select 'gr-running-' || n, 'default', '{{}}' from generate_series(1, {ROWS}) as n;
    insert into grns.operations (workspace, action, filter, canary, patch, created_by, matched, is_exact, state, due_at,
        ended_at)
    select 'workspace-' || n, 'redrive', '', false, '{{}}', 'me', 1, true, 'done', null, now()
    from generate_series(1, {ROWS}) as n;
    insert into grns.schedules (workspace, name, every_seconds, time_zone, task_type, agent_type, payload, priority,
        overlap, catch_up, window_seconds, jitter_seconds, anchor_at, next_at, updated_by)
    select 'workspace-' || n % 7, 'schedule-' || n, 60, 'UTC', 'x', 'worker', '{{}}', 1, 'skip', 'none', 0, 0, now(), now(), 'me'
    from generate_series(1, {ROWS}) as n;
"""  # noqa: E501


async def _database(server: LocalPostgres, knows: str) -> str:
    url = await new_database(server)
    connection = await asyncpg.connect(url)
    try:
        for table in await connection.fetch(
            "select c.oid::regclass::text as name from pg_class c"
            " where c.relnamespace = 'grns'::regnamespace and c.relkind = 'r'"
        ):
            await connection.execute(f"alter table {table['name']} set (autovacuum_enabled = false)")
        if knows == STALE:
            await connection.execute("vacuum analyze")
        await connection.execute(_FILL)
        if knows == FRESH:
            await connection.execute("vacuum analyze")
    finally:
        await connection.close()
    return url


@pytest.fixture(scope="module", params=[EMPTY, STALE, FRESH])
def full_url(postgres: LocalPostgres, request: pytest.FixtureRequest) -> str:
    """A database with thousands of tasks in each state, and with what the planner knows of them."""
    return asyncio.run(_database(postgres, request.param))


@pytest.fixture
async def connection(full_url: str) -> AsyncIterator[Connection]:
    """A connection as the hot statements have it; what happens on it is undone."""
    database = Database(full_url, name="plans", size=1)
    await database.connect()
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await transaction.rollback()
    await database.close()


async def plan_of(connection: Connection, name: str) -> list[dict[str, Any]]:
    """Return all nodes of a statement's plan, as it is executed on this connection."""
    return await plan_of_sql(connection, statement(name))


async def plan_of_sql(connection: Connection, sql: str) -> list[dict[str, Any]]:
    """Return all nodes of the plan of SQL, as it is executed on this connection."""
    await connection.execute(f"prepare hot as {sql}")
    types = await connection.fetchval(
        "select parameter_types::text[] from pg_prepared_statements where name = 'hot' and from_sql"
    )
    # the plan is a generic one; but partitions that cannot hold `seq > null` are not in it
    arguments = ", ".join("1" if kind == "bigint" else "null" for kind in types)
    said = f"({arguments})" if types else ""
    return nodes_of(await connection.fetchval(f"explain (format json) execute hot {said}"))


def nodes_of(plan: str) -> list[dict[str, Any]]:
    """Return all nodes of a plan, the outermost first."""
    nodes, pending = [], [json.loads(plan)[0]["Plan"]]
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending += node.get("Plans", ())
    return nodes


def looks_at(nodes: list[dict[str, Any]], table: str) -> list[str]:
    """Return how a table is looked at: names of indexes, or the kind of scan."""
    return [
        node["Index Name"] if "Index Cond" in node else node["Node Type"]
        for node in nodes
        if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"
    ]


def compared_with_each(nodes: list[dict[str, Any]]) -> list[str]:
    """Return what is walked through once for each row of something else; but for the few types of a pool."""
    inner = [node["Plans"][1] for node in nodes if node["Node Type"] == "Nested Loop"]
    while wrapped := [node for node in inner if node["Node Type"] in ("Materialize", "Memoize")]:
        inner = [node for node in inner if node not in wrapped] + [node["Plans"][0] for node in wrapped]
    named = [node.get("Alias", "") for node in inner if node["Node Type"] in ("CTE Scan", "Function Scan")]
    return [name for name in named if name not in ("handled", "h")]


@pytest.mark.parametrize("name", BY_ID)
async def test_rows_that_are_named_are_found_by_their_id(connection: Connection, name: str) -> None:
    nodes = await plan_of(connection, name)
    looks = looks_at(nodes, "tasks")
    assert looks
    assert set(looks) == {"tasks_pkey"} | ({"Tid Scan"} if name in IN_PLACE else set())
    assert not compared_with_each(nodes)


async def test_the_secrets_of_an_attempt_are_found_by_its_task(connection: Connection) -> None:
    nodes = await plan_of(connection, "read_attempt_secrets")
    assert looks_at(nodes, "progress") == ["progress_pkey"]
    assert looks_at(nodes, "steps") == ["steps_pkey"]


async def test_what_an_agent_runs_is_counted_by_its_workers(connection: Connection) -> None:
    body: str = await connection.fetchval("select prosrc from pg_proc where proname = 'agent_running'")
    nodes = await plan_of_sql(connection, body.replace("agent.workspace", "$1").replace("agent.name", "$2"))
    assert looks_at(nodes, "tasks") == ["tasks_over_http"]
    assert looks_at(nodes, "workers") == ["workers_agent"]


async def test_mail_is_listed_by_its_conversation_or_by_its_agent(connection: Connection) -> None:
    looks = looks_at(await plan_of(connection, "list_mail"), "mail")
    assert {"mail_conversation", "mail_of", "mail_open"} < {*looks}


async def test_mail_is_handed_out_by_the_index_of_what_is_open(connection: Connection) -> None:
    assert looks_at(await plan_of(connection, "poll_mail"), "mail") == ["mail_open"]
    await connection.execute("deallocate hot")
    assert {*looks_at(await plan_of(connection, "deliver_mail"), "mail")} == {"mail_pkey"}


async def test_mail_is_archived_by_its_age_and_deleted_by_its_number(connection: Connection) -> None:
    assert looks_at(await plan_of(connection, "find_old_mail"), "mail") == ["mail_age"]
    await connection.execute("deallocate hot")
    assert looks_at(await plan_of(connection, "delete_archived_mail"), "mail") == ["mail_pkey"] * 2


# The kinds of rows with secrets, and where they are.
SEALED = {
    "c": "progress", "e": "steps", "m": "mail", "o": "operations", "r": "tasks", "s": "schedules",
    "t": "tasks", "w": "webhook_secrets",
}  # fmt: skip


async def test_rows_with_secrets_are_read_in_the_order_of_their_key(connection: Connection) -> None:
    """Without a sort: that would read all of a table for one page."""
    nodes = await plan_of(connection, "read_sealed")
    for table in SEALED.values():
        assert {*looks_at(nodes, table)} == {f"{table}_pkey"}
    sorts = [node for node in nodes if node["Node Type"].endswith("Sort")]
    assert "_pkey" not in json.dumps([node for node in sorts if "number" not in str(node["Sort Key"])])


@pytest.mark.parametrize("kind", SEALED)
async def test_read_sealed_looks_at_one_page_however_few_rows_have_secrets(
    connection: Connection, kind: str
) -> None:
    table, place = SEALED[kind], ""
    for _ in range(3):
        before = await reads(connection, table)
        (last,) = await connection.fetch(statement("read_sealed"), place, 500, kind)
        after = await reads(connection, table)
        assert sum(after.values()) - sum(before.values()) <= 500 + FEW
        assert (last["number"], last["document"]) == (500, None)
        assert last["place"] > place
        place = last["place"]


async def test_rows_that_are_sealed_again_are_found_by_their_key(connection: Connection) -> None:
    nodes = await plan_of(connection, "reseal")
    assert {table: {*looks_at(nodes, table)} for table in SEALED.values()} == {
        table: {f"{table}_pkey"} for table in SEALED.values()
    }


@pytest.mark.parametrize(
    ("name", "looks"), [("follow_limits", {"tasks_pkey"}), ("admit_tasks", {"tasks_pkey", "Tid Scan"})]
)
async def test_tasks_under_limits_are_found_by_their_id(
    connection: Connection, name: str, looks: set[str]
) -> None:
    assert set(looks_at(await plan_of(connection, name), "tasks")) == looks


@pytest.mark.parametrize("name", LOOKING)
async def test_rows_that_are_looked_for_are_found_in_order(connection: Connection, name: str) -> None:
    """No more of the index is read than rows are wanted."""
    nodes = await plan_of(connection, name)
    # What has a route is found by an index of its own, and none is looked for here.
    found = [one for one in looks_at(nodes, "tasks") if one != "tasks_routed"]
    if name == "claim_next":
        found.remove("tasks_pkey")  # by which it locks what has a route
    assert sorted(found) == sorted([LOOKING[name], "Tid Scan" if name in IN_PLACE else "tasks_pkey"])
    sorts = [node for node in nodes if node["Node Type"].endswith("Sort")]
    assert not [node for node in sorts if LOOKING[name] in json.dumps(node)]


@pytest.mark.parametrize("name", CLAIMING)
async def test_whether_it_is_paused_is_looked_up_once_for_a_statement(
    connection: Connection, name: str
) -> None:
    """Not once for each task: what the look has found is asked for in the places of constants."""
    nodes = await plan_of(connection, name)
    (look,) = [node for node in nodes if node.get("Relation Name") == "pauses"]
    assert looks_at(nodes, "pauses") == ["pauses_pkey"]
    assert (look["Parent Relationship"], look["Subplan Name"]) == ("InitPlan", "CTE paused")
    if name == "claim":
        asked = [node["Parent Relationship"] for node in nodes if node.get("CTE Name") == "paused"]
        assert asked == ["InitPlan"] * 2
    else:  # types that are paused, or of other pools, are passed over within the index
        (ready,) = [node for node in nodes if node.get("Index Name") == "tasks_ready"]
        assert "task_type = ANY" in ready["Index Cond"]
        assert "task_type" not in ready.get("Filter", "")


async def test_a_large_claim_looks_at_the_pauses_once(connection: Connection) -> None:
    await connection.execute(_PAUSES)
    ids = [f"gr-queued-{number}" for number in range(1, 201)]
    leases = [str(uuid4()) for _ in ids]
    await connection.execute(f"prepare hot as {statement('claim')}")
    plan = await connection.fetchval(
        f"explain (analyze, format json) execute hot (array{ids}::text[], array{leases}::uuid[],"
        " array_fill(null::uuid, array[200]), 'worker-1', 'default', 'worker', array['noop'], array[3], 15)"
    )
    nodes = nodes_of(plan)
    assert nodes[0]["Actual Rows"] == len(ids), "what is paused are other types, and other pools"
    looks = [
        node for node in nodes if node.get("Relation Name") == "pauses" or node.get("CTE Name") == "paused"
    ]
    assert [node["Actual Loops"] for node in looks] == [1, 1, 1]


async def test_of_a_paused_pool_no_task_is_read(connection: Connection) -> None:
    await connection.execute(
        "insert into grns.pauses (workspace, agent_type, paused_by) values ('default', 'worker', 'me')"
    )
    before = await reads(connection)
    ids = [f"gr-queued-{number}" for number in range(1, 201)]
    leases = [uuid4() for _ in ids]
    pool = ("worker-1", "default", "worker", ["noop"], [3], 15.0)
    assert await connection.fetch(statement("claim"), ids, leases, [None] * len(ids), *pool) == []
    assert await connection.fetch(statement("claim_next"), leases, *pool, 0.0, None) == []
    assert await reads(connection) == before


@pytest.mark.parametrize("name", ["read_agent_types", "read_pools"])
async def test_pools_are_listed_from_what_is_queued(connection: Connection, name: str) -> None:
    nodes = await plan_of(connection, name)
    assert set(looks_at(nodes, "tasks")) == {"tasks_ready"}
    assert looks_at(nodes, "workers") == ["workers_alive"]
    assert set(looks_at(nodes, "pauses")) <= {"pauses_pkey"}


async def test_of_a_long_queue_a_list_of_pools_reads_no_more_than_it_counts(connection: Connection) -> None:
    for name, arguments, most in (
        ("read_agent_types", ("", 51), 1),
        ("read_pools", (["worker", "writer"], 101), 4 * 101),
    ):
        before = (await reads(connection))["tasks_ready"]
        rows = await connection.fetch(statement(name), "default", *arguments)
        assert rows[0]["agent_type"] == "worker"
        assert (await reads(connection))["tasks_ready"] - before <= most + FEW, name
    assert [row["queued"] for row in rows] == [[101] * 4, [0] * 4]


async def test_what_is_around_a_task_is_found_by_its_id_and_in_its_pool(connection: Connection) -> None:
    nodes = await plan_of(connection, "read_situation")
    # Of a task under limits: those with its keys, those before it.
    assert set(looks_at(nodes, "tasks")) == {"tasks_pkey", "tasks_ready", "tasks_limited", "Index Scan"}
    assert set(looks_at(nodes, "workers")) == {"workers_alive", "workers_pkey"}
    before = (await reads(connection))["tasks_ready"]
    (row,) = await connection.fetch(statement("read_situation"), "gr-queued-1", "default", 101, 20)
    assert row["ahead"] == 101
    assert (await reads(connection))["tasks_ready"] - before <= 4 * 101 + FEW


async def test_the_pulse_is_one_row_of_each_index(connection: Connection) -> None:
    nodes = await plan_of(connection, "read_pulse")
    assert sorted(looks_at(nodes, "tasks")) == ["tasks_due", "tasks_lease"]
    assert looks_at(nodes, "operations") == ["operations_due"]


async def test_what_nobody_serves_is_looked_for_among_the_oldest(connection: Connection) -> None:
    assert looks_at(await plan_of(connection, "read_unserved"), "tasks") == ["tasks_ready"]
    before = (await reads(connection))["tasks_ready"]
    rows = await connection.fetch(statement("read_unserved"), "default", ["worker", "writer"], 10)
    assert [(row["agent_type"], row["task_type"], row["count"]) for row in rows] == [("worker", "noop", 40)]
    assert (await reads(connection))["tasks_ready"] - before <= 4 * 10 + FEW


async def test_of_a_long_queue_a_gauge_reads_the_front(connection: Connection) -> None:
    """Of each lane, and of nothing else: whatever is queued, and however many types of agents there are."""
    nodes = await plan_of(connection, "read_queue_ages")
    assert set(looks_at(nodes, "tasks")) <= {"tasks_ready", "Index Scan", "Index Only Scan"}
    indexes = {node["Index Name"] for node in nodes if node.get("Relation Name") == "tasks"}
    assert indexes == {"tasks_ready"}
    await connection.execute(_AGENT)
    before = (await reads(connection))["tasks_ready"]
    rows = await connection.fetch(statement("read_queue_ages"), 1000, 100, [], [], [])
    assert [(row["priority"], row["unserved"]) for row in rows] == [(number, []) for number in range(4)]
    assert (await reads(connection))["tasks_ready"] - before <= 1 + 4 * 100 + FEW


async def test_the_oldest_of_what_waits_is_one_step_into_an_index(connection: Connection) -> None:
    nodes = await plan_of(connection, "read_lags")
    indexes = sorted(node["Index Name"] for node in nodes if node.get("Relation Name") == "tasks")
    assert indexes == ["tasks_due", "tasks_lease", "tasks_limited", "tasks_pkey"]  # the last of a question
    # One, and not all: what is rolled back stays in the indexes, where others count what is read.
    await connection.execute(
        "update grns.tasks set lease_until = lease_until - interval '1 h'"
        " where id = (select id from grns.tasks order by lease_until limit 1)"
    )
    last = await connection.fetchval("select max(seq) from grns.events")
    for low, published in ((1, []), (last, []), (2, [(4, last - 2)])):
        for table, column in (("relay_cursor", "published"), ("count_cursor", "counted")):
            await connection.execute(
                f"update grns.{table} set low = $1, {column} = $2",
                low,
                [asyncpg.Range(*one) for one in published],
            )
        before = await log_reads(connection)
        await connection.fetch(statement("read_lags"), None, None)
        assert await log_reads(connection) - before <= 2 + FEW


@pytest.mark.parametrize("name", BY_NUMBER)
async def test_the_log_is_read_by_number(connection: Connection, name: str) -> None:
    nodes = await plan_of(connection, name)
    looks = looks_at(nodes, PARTITION)
    assert looks
    assert set(looks) == {f"{PARTITION}_pkey"}


async def test_workers_are_listed_from_those_that_live(connection: Connection) -> None:
    assert looks_at(await plan_of(connection, "list_workers"), "workers") == ["workers_alive"]


async def test_workers_are_counted_from_those_that_live(connection: Connection) -> None:
    nodes = await plan_of(connection, "count_workers")
    assert [node["Index Name"] for node in nodes if node.get("Relation Name") == "workers"] == [
        "workers_alive"
    ]


@pytest.mark.parametrize("name", BY_TASK)
async def test_a_history_is_read_by_task(connection: Connection, name: str) -> None:
    looks = looks_at(await plan_of(connection, name), PARTITION)
    assert looks
    assert set(looks) == {OF_TASK}


async def test_a_page_of_a_history_is_found_by_task_and_read_by_number(connection: Connection) -> None:
    looks = looks_at(await plan_of(connection, "read_task_events"), PARTITION)
    assert sorted(looks) == [f"{PARTITION}_pkey", OF_TASK]


@pytest.mark.parametrize("name", [*BY_ID, *LOOKING])
async def test_what_confines_tenants_costs_nobody_else(connection: Connection, name: str) -> None:
    assert "grns.workspace" not in json.dumps(await plan_of(connection, name))


@pytest.mark.parametrize("name", FOR_TENANTS)
async def test_rows_that_a_tenant_names_are_found_by_their_id(connection: Connection, name: str) -> None:
    await run(connection, "become_tenant", "default")
    nodes = await plan_of(connection, name)
    assert "grns.workspace" in json.dumps(nodes)
    assert set(looks_at(nodes, "tasks")) == {"tasks_pkey"}
    assert not compared_with_each(nodes)


async def test_a_tenant_reads_a_history_by_its_task(connection: Connection) -> None:
    await run(connection, "become_tenant", "default")
    assert set(looks_at(await plan_of(connection, "read_history"), PARTITION)) == {OF_TASK}


@pytest.mark.parametrize("name", OF_KEYS)
async def test_keys_are_found_by_their_id_or_workspace(connection: Connection, name: str) -> None:
    assert sorted(looks_at(await plan_of(connection, name), "api_keys")) == OF_KEYS[name]


async def test_workspaces_are_read_in_order(connection: Connection) -> None:
    nodes = await plan_of(connection, "list_workspaces")
    assert looks_at(nodes, "workspaces") == ["workspaces_pkey"]
    assert not [node for node in nodes if node["Node Type"].endswith("Sort")]


async def test_what_the_floor_claimed_is_read_back_from_the_running_ones(connection: Connection) -> None:
    nodes = await plan_of(connection, "read_next_claims")
    assert [node.get("Index Name") for node in nodes if node.get("Relation Name") == "tasks"] == [
        "tasks_lease"
    ]


async def test_what_turned_out_to_have_no_effect_is_forgotten_by_its_key(connection: Connection) -> None:
    looks = looks_at(await plan_of(connection, "unmark_messages"), "processed_messages")
    assert sorted(looks) == ["Tid Scan", "processed_messages_pkey"]


async def test_what_a_message_led_to_is_found_by_its_key(connection: Connection) -> None:
    nodes = await plan_of(connection, "find_submitted")
    assert looks_at(nodes, "tasks") == ["tasks_idempotency_key"]
    assert not compared_with_each(nodes)


async def test_what_was_processed_is_forgotten_by_age(connection: Connection) -> None:
    looks = looks_at(await plan_of(connection, "delete_processed_messages"), "processed_messages")
    assert sorted(looks) == ["Tid Scan", "processed_messages_age"]


@pytest.mark.parametrize(
    ("name", "index"), [("take_operation", "operations_due"), ("read_operations", "operations_listed")]
)
async def test_an_operation_is_found_by_when_it_is_due_and_where_it_is_listed(
    connection: Connection, name: str, index: str
) -> None:
    assert index in looks_at(await plan_of(connection, name), "operations")


async def test_what_was_redriven_is_followed_by_its_id(connection: Connection) -> None:
    nodes = await plan_of(connection, "follow_operation")
    assert set(looks_at(nodes, "operation_tasks")) == {"operation_tasks_pkey"}
    assert set(looks_at(nodes, "tasks")) == {"tasks_pkey"}
    assert "operations_followed" in looks_at(nodes, "operations")


async def test_what_is_counted_is_read_by_number_and_what_it_is_about_by_its_id(
    connection: Connection,
) -> None:
    nodes = await plan_of(connection, "count_log")
    # By task: only where that one is not there any more.
    assert set(looks_at(nodes, PARTITION)) == {f"{PARTITION}_pkey", OF_TASK}
    assert set(looks_at(nodes, "tasks")) == {"tasks_pkey"}
    assert set(looks_at(nodes, "workers")) == {"workers_pkey"}
    assert set(looks_at(nodes, "issues")) == {"issues_pkey"}
    assert set(looks_at(nodes, "issue_facets")) == {"issue_facets_pkey"}


async def test_of_the_tasks_no_more_is_counted_than_the_log_is_about(connection: Connection) -> None:
    session = cast(Database, Session(connection))
    lease = LeaderLease("stats", "test", 60.0)
    assert await lease.acquire(session)
    cursor = await count.read_cursor(session)
    before, rows = await reads(connection), await log_reads(connection)
    counted = await count.count(session, lease, cursor, [(1, 201)], LogCursor(0, 200, []))
    assert counted is not None
    after = await reads(connection)
    read = {name: after[name] - before[name] for name in after}
    assert read.pop("tasks_pkey") <= 200 + FEW
    assert not any(read.values()), read
    assert await log_reads(connection) - rows <= 200 + FEW


@pytest.mark.parametrize("states", [["ignored"], list(STATES)], ids=["one", "all"])
async def test_issues_are_listed_in_the_order_of_their_index(
    connection: Connection, states: list[str]
) -> None:
    assert looks_at(await plan_of(connection, "list_issues"), "issues") == ["issues_seen"]
    before = await reads(connection, "issues")
    rows = await connection.fetch(statement("list_issues"), "default", states, None, None, 10)
    assert len(rows) == 10
    after = await reads(connection, "issues")
    assert after["issues_seen"] - before["issues_seen"] <= len(states) * 11
    page = await connection.fetch(
        statement("list_issues"), "default", states, rows[-1]["last_seen"], rows[-1]["fingerprint"], 10
    )
    assert {row["fingerprint"] for row in page}.isdisjoint(row["fingerprint"] for row in rows)
    assert (await reads(connection, "issues"))["issues_seen"] - after["issues_seen"] <= len(states) * 12


COUNTED = {
    "count_states": ("task_counts", ["task_counts_pkey"]),
    "read_issue": ("issues", ["issues_pkey"]),
    "change_issue": ("issues", ["issues_pkey", "issues_pkey"]),
    "delete_task_minutes": ("task_minutes", ["Tid Scan", "task_minutes_age"]),
    "delete_issue_hours": ("issue_hours", ["Tid Scan", "issue_hours_age"]),
    "delete_issues": ("issues", ["Tid Scan", "issues_age"]),
}


@pytest.mark.parametrize("name", COUNTED)
async def test_what_was_counted_is_found_by_its_index(connection: Connection, name: str) -> None:
    table, indexes = COUNTED[name]
    assert sorted(looks_at(await plan_of(connection, name), table)) == sorted(indexes)


async def test_of_the_minutes_no_more_is_read_than_the_stretch_has(connection: Connection) -> None:
    """By either index: where there is one workspace, the shorter one is as good."""
    (index,) = looks_at(await plan_of(connection, "read_minutes"), "task_minutes")
    before = await reads(connection, "task_minutes")
    hour = await connection.fetchrow(_LAST_HOUR) or ()
    rows = await connection.fetch(statement("read_minutes"), "default", *hour, 60.0, None)
    assert 58 <= len(rows) <= 61
    assert (await reads(connection, "task_minutes"))[index] - before[index] <= 61


@pytest.mark.parametrize("key", ["queued{}", "fresh{}", None])
async def test_a_submission_looks_at_no_more_than_its_ids_and_keys(
    connection: Connection, key: str | None
) -> None:
    """Its statements are inside a function, which `explain` does not see: what they have read tells."""
    batch = [
        prepare(submission(task_type="noop", idempotency_key=key and key.format(3 * n)), DEFAULT_LIMITS)
        for n in range(1, 201)
    ]
    before = await reads(connection)
    rows = await connection.fetch(statement("submit_tasks"), *columns(batch))
    assert len(rows) == (200 if key == "queued{}" else 0), "a row for each that was there already"
    after = await reads(connection)
    read = {name: after[name] - before[name] for name in after}
    for index in (
        "tasks_ready",
        "tasks_due",
        "tasks_lease",
        "tasks_ended",
        "tasks_discarded",
        "tasks_issue",
        "tasks",
    ):
        assert read[index] == 0, read
    assert read["tasks_pkey"] <= 600, read
    assert read["tasks_idempotency_key"] <= 600, read


async def test_queues_are_audited_where_a_worker_is_idle_and_in_order(connection: Connection) -> None:
    """However long the queue is: where all work, nothing of it is read, and else no more than is told of."""
    nodes = await plan_of(connection, "audit_now")
    looks = [node.get("Index Name", "all") for node in nodes if node.get("Relation Name") == "tasks"]
    assert sorted(looks) == [
        "tasks_admitted", "tasks_due", "tasks_lease", "tasks_lease", "tasks_limited", "tasks_needy",
        "tasks_pkey", "tasks_ready",
    ]  # fmt: skip
    await connection.execute(_AGENT)
    read: dict[str, int] = {}
    for state, idle_seconds in (("working", 0.0), ("idle", 3600.0)):
        await connection.fetch(statement("touch_worker"), "idle", idle_seconds, 0, "default", None, None)
        before = (await reads(connection))["tasks_ready"]
        rows = await connection.fetch(statement("audit_now"), 1.0, 10, 0.5)
        read[state] = (await reads(connection))["tasks_ready"] - before
        assert [row["invariant"] for row in rows].count("undelivered") == (10 if idle_seconds else 0)
    assert read["working"] == 0
    assert read["idle"] <= 4 * 11, "of each priority as many as are told of"


async def test_of_what_is_published_the_audit_reads_nothing(connection: Connection) -> None:
    """However long a stranger's transaction keeps a number missing, and however much comes behind it."""
    last = await connection.fetchval("select max(seq) from grns.events")
    assert last == 6 * ROWS
    await connection.execute("update grns.events set created_at = now() - interval '1 h'")
    for low, published, late in (
        (2, [(4, last - 2), (last - 1, last)], [3, last - 2, last]),
        (last - 20, [], list(range(last - 19, last - 9))),  # as many as are told of
        (last, [], []),
    ):
        await connection.execute(
            "update grns.relay_cursor set low = $1, published = $2",
            low, [asyncpg.Range(*one) for one in published],
        )  # fmt: skip
        before = await log_reads(connection)
        rows = await connection.fetch(statement("audit_now"), 60.0, 10, 30.0)
        read = await log_reads(connection) - before
        told = [row["detail"] for row in rows if row["invariant"] == "unrelayed"]
        assert [detail.split()[4] for detail in told] == [str(number) for number in late]
        assert read <= len(late) + FEW


async def test_of_what_is_yet_to_be_published_the_audit_reads_a_page(connection: Connection) -> None:
    """Where it is all young there is nothing to tell of, however much it is."""
    await connection.execute("update grns.relay_cursor set low = 1, published = '{}'")
    before = await log_reads(connection)
    rows = await connection.fetch(statement("audit_now"), 3600.0, 10, 30.0)
    assert not [row for row in rows if row["invariant"] == "unrelayed"]
    assert await log_reads(connection) - before <= 10 + FEW


async def test_the_audit_compares_no_event_with_each_other_one(connection: Connection) -> None:
    """A thousand tasks of a dozen attempts have 37,000 events and 13,000 commands: that would be minutes."""
    await connection.execute(_RETRIED)
    await connection.execute(f"prepare hot as {statement('audit_tasks')}")
    arguments = ", ".join(
        f"array{values}::text[]"
        for values in (
            list(STATUS_AFTER),
            [status.value for status in STATUS_AFTER.values()],
            [],
            ["none>queued>evt.task.queued", "retry_wait>queued>evt.task.queued"],
            ["running>dead>evt.task.dead"],
        )
    )
    plan = await connection.fetchval(
        f"explain (analyze, format json) execute hot ('gr-zz-', 1000, {arguments})"
    )
    pending, compared = [json.loads(plan)[0]["Plan"]], 0
    while pending:
        node = pending.pop()
        compared += node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]
        pending += node.get("Plans", ())
    assert compared < 25 * _RETRIED_EVENTS, "with the kinds that there are, and with a hundred tasks at most"


WEBHOOKS = {
    "make_deliveries": {"webhooks": {"webhooks_enabled"}},
    "claim_deliveries": {
        "webhook_deliveries": {"webhook_deliveries_due", "webhook_deliveries_pkey"},
        "webhook_secrets": {"webhook_secrets_webhook"},
    },
    "finish_delivery": {"webhook_deliveries": {"webhook_deliveries_pkey"}, "webhooks": {"webhooks_pkey"}},
    "resend_delivery": {"webhook_deliveries": {"webhook_deliveries_pkey"}, "webhooks": {"webhooks_listed"}},
    "read_delivery": {"webhook_deliveries": {"webhook_deliveries_pkey"}, "webhooks": {"webhooks_pkey"}},
    "list_deliveries": {"webhook_deliveries": {"webhook_deliveries_pkey"}},
    "delete_webhook_deliveries": {"webhook_deliveries": {"webhook_deliveries_age", "Tid Scan"}},
    "disable_webhooks": {"webhook_deliveries": {"webhook_deliveries_due"}},
}


@pytest.mark.parametrize("name", WEBHOOKS)
async def test_what_webhooks_are_told_of_is_found_by_its_index(connection: Connection, name: str) -> None:
    nodes = await plan_of(connection, name)
    for table, indexes in WEBHOOKS[name].items():
        assert set(looks_at(nodes, table)) - {"Index Scan", "Index Only Scan"} == indexes, table
    if name in ("make_deliveries", "claim_deliveries"):
        assert set(looks_at(nodes, PARTITION)) == {f"{PARTITION}_pkey"}


async def test_of_what_waits_for_webhooks_no_more_is_read_than_is_taken(connection: Connection) -> None:
    before = await reads(connection, "webhook_deliveries")
    rows = await connection.fetch(statement("claim_deliveries"), uuid4(), False, 10, 50, 60.0, [], [], [])
    assert [row["webhook_id"] for row in rows] == ["wh-2"] * 10
    after = await reads(connection, "webhook_deliveries")
    assert after["webhook_deliveries_due"] - before["webhook_deliveries_due"] <= 10 + FEW
    assert after["webhook_deliveries_pkey"] - before["webhook_deliveries_pkey"] <= 10 + FEW


_LAST_HOUR = "select now() - interval '1 hour', now()"


# A filter, its index scan, and the indexes in the plan.
LISTED = (
    ("", LATEST, "tasks_pkey"),
    ("type:noop attempt:>2", LATEST, "tasks_pkey"),
    ("id:gr-dead-1,gr-dead-2", LATEST, "tasks_pkey"),
    ("gr-dead-1", LATEST, "tasks_pkey"),
    ("key:dead3,dead6", LATEST, "tasks_idempotency_key"),
    ("status:running", RUNNING, "tasks_lease"),
    ("status:queued", QUEUED, "tasks_ready"),
    ("status:queued pool:worker priority:0,>2", QUEUED, "tasks_ready"),
    ("status:waiting", DUE, "tasks_due"),
    ("status:dead", ENDED, "tasks_ended"),
    ("status:dead,succeeded error:Timeout*", ENDED, "tasks_ended"),
    ("status:queued pool:worker", QUEUED, "tasks_ready"),
    ("status:queued pool:worker priority:0", QUEUED, "tasks_ready"),
    ("status:dead discarded:yes", ENDED, "tasks_discarded"),
    ("status:dead fingerprint:one", ENDED, "tasks_issue"),
    ("status:dead,failed fingerprint:one,two type:noop", ENDED, "tasks_issue"),
)
# On these, no more is read than a page has rows; of what is in the order of times a few more.
READ_IN_ORDER = (
    "", "gr-dead-1", "key:dead3,dead6", "status:queued", "status:queued pool:worker",
    "status:queued pool:worker priority:0", "status:dead",
)  # fmt: skip


def scan_of(text: str, name: str) -> tuple[IndexScan, SearchQuery]:
    """Return the scan of this name for a filter."""
    wanted = parse(text)
    scans = [scan for plan in plans(wanted, wanted.states, "default") for scan in plan]
    return next(scan for scan in scans if scan.name == name), SearchQuery(wanted, wanted.states, "default")


def key_of(scan: IndexScan) -> Key:
    """Return a key of a scan, of the right types."""
    values = {
        "agent_type": "worker", "priority": 1, "id": "gr-m", "queued_at": LONG_AGO,
        "next_attempt_at": LONG_AGO, "finished_at": datetime(9999, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    return tuple(values[column.name] for column in scan.order)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("text", "name", "index"), LISTED)
async def test_a_list_is_read_from_its_index(
    connection: Connection, text: str, name: str, index: str, is_first: bool
) -> None:
    """The first page, and one behind a place; and as many as there are are counted in the same way."""
    scan, wanted = scan_of(text, name)
    for select in (
        page_statement(scan, wanted, () if is_first else key_of(scan), 10),
        count_statement(scan, wanted),
    ):
        nodes = await plan_of_sql(connection, query.compiled(select)[0])
        await connection.execute("deallocate hot")
        looks = [node.get("Index Name") for node in nodes if node.get("Relation Name") == "tasks"]
        assert looks
        assert set(looks) == {index}


@pytest.mark.parametrize(("text", "name", "index"), [one for one in LISTED if one[0] in READ_IN_ORDER])
async def test_of_a_list_no_more_is_read_than_a_page_shows(
    connection: Connection, text: str, name: str, index: str
) -> None:
    scan, wanted = scan_of(text, name)
    before = (await reads(connection))[index]
    rows = await query.fetch(connection, page_statement(scan, wanted, (), 10))
    assert len(rows) == (2 if text.startswith("key:") else 11)
    assert (await reads(connection))[index] - before <= 11 + 2 * _SORTED_TOGETHER


async def test_of_what_nobody_is_like_a_page_reads_as_much_as_it_may(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_page, "MOST_LOOKED_AT", 500)
    for text, name, index in (
        ("type:nothing", LATEST, "tasks_pkey"),
        ("status:dead attempt:>5", ENDED, "tasks_ended"),
    ):
        scan, wanted = scan_of(text, name)
        before = (await reads(connection))[index]
        (row,) = await query.fetch(connection, page_statement(scan, wanted, (), 10))
        assert (row["is_match"], row["is_last"]) == (False, True)
        # Entries of transactions that were rolled back are read, too.
        assert (await reads(connection))[index] - before <= 500 + 10 * FEW


@pytest.mark.parametrize("name", ["list_letters", "count_letters"])
async def test_messages_are_read_from_those_that_nobody_has_dealt_with(
    connection: Connection, name: str
) -> None:
    looks = [
        node.get("Index Name")
        for node in await plan_of(connection, name)
        if node.get("Relation Name") == "dead_letters"
    ]
    assert looks == ["dead_letters_new"]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("sum_counts", "task_counts_pkey"),
        ("list_filters", "saved_filters_pkey"),
        ("read_filter", "saved_filters_pkey"),
        ("delete_filter", "saved_filters_pkey"),
    ],
)
async def test_what_is_kept_by_name_is_found_by_it(connection: Connection, name: str, index: str) -> None:
    nodes = await plan_of(connection, name)
    assert looks_at(nodes, index.removesuffix("_pkey")) == [index]


# Rows of nearly one time are sorted some at a time.
_SORTED_TOGETHER = 64
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

# A hundred tasks of 12 attempts each.
_RETRIED_EVENTS = 100 * (1 + 3 * 12 + 1 + 12)
_RETRIED = """
    insert into grns.tasks (id, workspace, task_type, agent_type, priority, status, payload, attempt,
        attempt_limit, trace_id, last_message_id, version, queued_at)
    select 'gr-zz-' || n, 'default', 'noop', 'worker', 1, 'queued', '{}', 12, 20, 't', gen_random_uuid(), 37,
        now()
    from generate_series(1, 100) as n;
    insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, payload)
    select e.version, 'default', 'gr-zz-' || n, e.kind, e.attempt, 't', '{}'
    from generate_series(1, 100) as n, generate_series(0, 12) as a, lateral (values
        (3 * a - 1, 'evt.task.claimed', a), (3 * a, 'evt.task.retry_scheduled', a),
        (3 * a + 1, 'evt.task.queued', a)) as e (version, kind, attempt)
    where e.version > 0;
"""

# One of a pool that is not asked for, and two of its types without a task.
_PAUSES = """
    insert into grns.pauses (workspace, agent_type, task_type, paused_by) values
        ('default', 'writer', '', 'me'), ('default', 'worker', 'slow', 'me'),
        ('default', 'worker', 'odd', 'me')
"""

_AGENT = """
    insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency, task_types,
        lease_seconds) values ('idle', 'default', 'worker', 'h', 1, '0', 1, '{noop}', 15)
"""


async def reads(connection: Connection, table: str = "tasks") -> dict[str, int]:
    """Return how many rows this transaction has read from a table, and through each index of it."""
    rows = await connection.fetch(
        "select c.relname, pg_stat_get_xact_tuples_returned(c.oid) as rows from pg_class c"
        " left join pg_index i on i.indexrelid = c.oid"
        " where c.oid = $1::text::regclass or i.indrelid = $1::text::regclass",
        f"grns.{table}",
    )
    return {row["relname"]: row["rows"] for row in rows}


async def log_reads(connection: Connection) -> int:
    """Return how many rows of the log this transaction has read, through whatever index or none."""
    rows = await connection.fetch(
        "select pg_stat_get_xact_tuples_returned(c.oid) as rows from pg_class c"
        " left join pg_index i on i.indexrelid = c.oid"
        " where c.oid = $1::text::regclass or i.indrelid = $1::text::regclass",
        f"grns.{PARTITION}",
    )
    return sum(int(row["rows"]) for row in rows)
