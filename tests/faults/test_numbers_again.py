"""A failover of Postgres that lost its last commits gives numbers of the log out twice: the relay copes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from grns.dev.servers import LocalNats, LocalPostgres
from grns.postgres.database import Database
from tests.chaos.proxy import Proxy
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_stories,
    committed,
    eventually,
    is_relayed,
    read_stream,
    ready,
    submit_many,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def network(postgres: LocalPostgres) -> AsyncIterator[Proxy]:
    """The network between the relay and Postgres."""
    proxy = Proxy(postgres.port)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the administrator's."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def is_through(database: Database) -> None:
    """Wait until the log has been published to its end."""
    await eventually(lambda: is_relayed(database), within_seconds=START_SECONDS)


async def run_some(database: Database, count: int) -> list[str]:
    """Have tasks submitted and finished."""
    ids = await submit_many(database, count)
    await all_in(database, ids, within_seconds=20)
    return ids


class Standby:
    """What a standby has: everything up to a moment, and the relay's cursor as it was still earlier."""

    def __init__(self, cursor: asyncpg.Record, last_seq: int) -> None:
        self.cursor = cursor
        self.last_seq = last_seq

    async def is_promoted(self, connection: asyncpg.Connection) -> None:
        """Let the tables be as they are there: later rows are gone, and the sequence is where it was."""
        async with connection.transaction():
            await connection.execute(
                "delete from grns.tasks where id in (select task_id from grns.events where seq > $1)",
                self.last_seq,
            )
            await connection.execute("delete from grns.events where seq > $1", self.last_seq)
            await connection.execute("select setval('grns.events_seq', $1)", self.last_seq)
            await connection.execute("delete from grns.relay_cursor")
            await connection.execute(
                "insert into grns.relay_cursor select ($1::grns.relay_cursor).*", self.cursor
            )


async def test_numbers_that_were_published_already_come_again(
    fleet: Fleet,
    database: Database,
    broker: LocalNats,
    network: Proxy,
    postgres: LocalPostgres,
    connection: asyncpg.Connection,
    database_url: str,
) -> None:
    """It forgets what it knew, and publishes what is there: also under numbers that it was done with."""
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    through = database_url.replace(f":{postgres.port}/", f":{network.port}/")
    assert through != database_url
    relay = fleet.start("daemon", "relay", GRNS_DATABASE_URL=through)
    await ready(database, worker)
    await run_some(database, 20)
    await is_through(database)
    cursor = await connection.fetchrow("select * from grns.relay_cursor")
    assert cursor is not None
    kept = await run_some(database, 20)
    await is_through(database)
    standby = Standby(cursor, await connection.fetchval("select last_value from grns.events_seq"))
    lost = await run_some(database, 60)
    await is_through(database)
    high = await connection.fetchval("select last_value from grns.events_seq")
    phantoms = await committed(database, "evt.")

    network.is_refusing = True
    assert network.cut()
    await standby.is_promoted(connection)
    phantoms -= await committed(database, "evt.")
    assert len(phantoms) == 3 * len(lost)
    again = await run_some(database, 20)
    assert await connection.fetchval("select last_value from grns.events_seq") < high
    network.heal()

    await is_through(database)
    later = await run_some(database, 60)
    assert await connection.fetchval("select last_value from grns.events_seq") > high
    await is_through(database)
    assert len(fleet.facts_of(relay, "relay_became_leader")) == 2
    await check_stories(database, [*kept, *again, *later])
    latest: dict[str, int] = {}
    seen: list[str] = []
    for heard in await read_stream(broker.url, "GRNS_EVT"):
        task_id = heard.headers["Grns-Task"]
        assert int(heard.headers["Grns-Version"]) == latest.get(task_id, 0) + 1, task_id
        latest[task_id] = int(heard.headers["Grns-Version"])
        seen.append(heard.headers["Nats-Msg-Id"])
    assert len(seen) == len(set(seen)), "what had been published before the failover is there once"
    assert set(seen) == await committed(database, "evt.") | phantoms
