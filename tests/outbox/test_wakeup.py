"""Transactions that no process of grns commits wake an idle relay by NOTIFY."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import psycopg
import pytest

import grns
import grns.sync
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import eventually, manage
from tests.support.relays import relaying
from tests.support.store import fetch

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("in_environment")]
_ASLEEP_SECONDS = 3.0
_SOON_SECONDS = 1.0
_GRAPH = '[{"task_type": "noop"}]'


@pytest.fixture
async def relay(
    in_environment: None, database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Run a relay that sleeps for long between two readings, and wait until it is idle."""
    monkeypatch.setattr("grns.outbox.relay._IDLE_SECONDS", _ASLEEP_SECONDS)
    async with relaying():

        async def is_idle() -> bool:
            return bool((await fetch(database, "select is_idle from grns.relay_cursor"))[0]["is_idle"])

        await eventually(is_idle)
        yield


async def stored(broker: LocalNats) -> int:
    """Return how many events the broker has."""
    return int((await manage(broker.url, "STREAM.INFO.GRNS_EVT"))["state"]["messages"])


async def in_sql(database: Database) -> None:
    """Submit by the function for any language."""
    await fetch(database, "select grns.submit_task('noop')")


async def as_graph(database: Database) -> None:
    """Submit by the function for graphs."""
    await fetch(database, f"select * from grns.submit_graph('{_GRAPH}')")


async def in_a_transaction(database: Database) -> None:
    """Submit in a transaction of the user's, which commits later."""
    connection = await asyncpg.connect(database.url)
    async with grns.connect() as client, connection.transaction():
        await client.submit("noop", pool="worker", connection=connection)
    await connection.close()


async def in_a_synchronous_transaction(database: Database) -> None:
    """Do the same with psycopg."""

    def submit() -> None:
        with grns.sync.Client() as client, psycopg.connect(database.url) as connection:
            client.submit("noop", pool="worker", connection=connection)

    await asyncio.to_thread(submit)


@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize("way", [in_sql, as_graph, in_a_transaction, in_a_synchronous_transaction])
async def test_what_users_commit_is_published_at_once(
    way: Callable[[Database], Awaitable[None]], database: Database, broker: LocalNats
) -> None:
    for count in range(1, 5):
        await way(database)
        committed_at = time.monotonic()

        async def is_stored(least: int = count) -> bool:
            return await stored(broker) >= least

        await eventually(is_stored)
        assert time.monotonic() - committed_at < _SOON_SECONDS


@pytest.mark.parametrize(
    ("is_idle", "lease", "notified"), [(True, "1 minute", 1), (False, "1 minute", 0), (True, "-1 second", 0)]
)
async def test_only_an_idle_relay_is_notified(
    shared: Database, is_idle: bool, lease: str, notified: int
) -> None:
    """With NOTIFY, commits take turns: a busy relay reads soon enough, and without one nobody hears it."""
    await fetch(shared, "update grns.relay_cursor set is_idle = $1", is_idle)
    await fetch(shared, f"update grns.leases set until = now() + interval '{lease}' where name = 'relay'")
    heard: list[object] = []
    connection = await asyncpg.connect(shared.url)
    await connection.add_listener("grns_relay", lambda *said: heard.append(said))
    async with connection.transaction():
        await connection.execute("select grns.submit_task('noop'), grns.submit_task('noop')")
    await connection.execute("select 1")
    await asyncio.sleep(0.05)
    await connection.close()
    assert len(heard) == notified


async def test_our_own_batches_notify_nobody(shared: Database) -> None:
    await fetch(shared, "update grns.relay_cursor set is_idle = true")
    await fetch(shared, "update grns.leases set until = now() + interval '1 minute' where name = 'relay'")
    heard: list[object] = []
    connection = await asyncpg.connect(shared.url)
    await connection.add_listener("grns_relay", lambda *said: heard.append(said))
    await fetch(
        shared,
        "select * from grns.submit_tasks(array['gr-1'], array['default'], array['noop'],"
        " array['worker'], array[2::smallint], array['{}'::jsonb], null, null, null, array['t'], null)",
    )
    await asyncio.sleep(0.05)
    await connection.close()
    assert heard == []
