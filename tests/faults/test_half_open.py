"""A network to Postgres on which nothing comes any more: noticed soon, and nothing wrong is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

import grns
from grns.errors import GrnsError, OutcomeUnknownError, UnavailableError
from grns.postgres.database import Database
from tests.chaos.proxy import Proxy
from tests.support.harness import Fleet, all_in, check_stories, eventually, ready, rows_of, submit_many

pytestmark = pytest.mark.timeout(120)

LEASE = 4.5
SLACK = 2.0
ENVIRONMENT = {
    "GRNS_LEASE_SECONDS": str(LEASE),
    "GRNS_REAPER_INTERVAL_SECONDS": "0.5",
    "GRNS_LOG_LEVEL": "debug",
}


@pytest.fixture
async def network(database: Database) -> AsyncIterator[Proxy]:
    """A network to Postgres that can be silent."""
    proxy = Proxy(int(database.url.rpartition("/")[0].rpartition(":")[2]))
    await proxy.start()
    yield proxy
    await proxy.stop()


def through(network: Proxy, database: Database) -> str:
    """Return the URL of the database behind that network."""
    return database.url.replace(f":{network.target_port}/", f":{network.port}/")


async def _has_begun_again(journal: Callable[[], list[str]], task_id: str) -> bool:
    return f"begin {task_id} 2" in journal()


@pytest.mark.parametrize("to_server", [True, False], ids=["nothing arrives", "nothing comes back"])
async def test_a_worker_whose_postgres_is_silent(
    fleet: Fleet,
    database: Database,
    network: Proxy,
    journal: Callable[[], list[str]],
    tmp_path: Path,
    to_server: bool,
) -> None:
    fleet.start("server", **ENVIRONMENT)
    url = through(network, database)
    cut_off = fleet.start(
        "worker",
        "start",
        "tests.support.pools:pool",
        "--concurrency",
        "5",
        **ENVIRONMENT,
        GRNS_DATABASE_URL=url,
    )
    await ready(database, cut_off)
    ids = await submit_many(database, 5, task_type="until", payload={"file": str(tmp_path / "file")})
    await all_in(database, ids, "running", within_seconds=10)
    other = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "5", **ENVIRONMENT)
    await ready(database, other)

    network.silence(to_server=to_server, to_client=not to_server)
    silent_at = time.monotonic()
    noticed = {"renew_failed", "renewals_unanswered"}

    async def is_noticed() -> bool:
        return any(fact["event"] in noticed for fact in fleet.facts_of(cut_off))

    # A renewal is due after a third of the lease, and is waited for as long at most.
    await eventually(is_noticed, within_seconds=2 * LEASE / 3 + SLACK)

    async def are_cancelled() -> bool:
        return sum(line.startswith("cancelled") for line in journal()) == len(ids)

    await eventually(are_cancelled, within_seconds=LEASE + SLACK)
    assert time.monotonic() - silent_at < LEASE + SLACK

    async def are_taken_over() -> bool:
        rows = await rows_of(database, ids)
        return all(row["attempt"] == 2 and row["status"] == "running" for row in rows.values())

    await eventually(are_taken_over, within_seconds=LEASE + 1 + SLACK)
    for task_id in ids:
        await eventually(partial(_has_begun_again, journal, task_id))
        told = [line for line in journal() if task_id in line]
        assert told == [f"begin {task_id} 1", f"cancelled {task_id} 1", f"begin {task_id} 2"]
    network.heal()
    await asyncio.sleep(SLACK)  # what was on its way arrives
    (tmp_path / "file").touch()
    await all_in(database, ids, within_seconds=30)
    stories = await check_stories(database, ids)
    for events in stories.values():
        assert [event["kind"] for event in events].count("evt.task.claimed") == 2


async def _refusal(work: Awaitable[object]) -> tuple[type[GrnsError], float]:
    """Return as what it was refused, and after how many seconds."""
    began_at = time.monotonic()
    with pytest.raises(GrnsError) as caught:
        await work
    return type(caught.value), time.monotonic() - began_at


@pytest.mark.parametrize("to_server", [True, False], ids=["nothing arrives", "nothing comes back"])
async def test_submit_while_postgres_is_silent(database: Database, network: Proxy, to_server: bool) -> None:
    """A client is told after a third of a lease, and may send it again under the same key."""
    lease = 7.5
    keys = [f"many-{number}" for number in range(1200)]
    many = [{"task": "noop", "pool": "worker", "idempotency_key": key} for key in keys]
    async with grns.connect(
        database_url=through(network, database), nats_url="nats://127.0.0.1:1", lease_seconds=lease
    ) as client:
        # Each of these has a connection of its own, which is there when nothing comes any more.
        await asyncio.gather(
            client.submit("noop", pool="worker"),
            client.submit_many([{"task": "noop", "pool": "worker"}] * 1000),
        )
        network.silence(to_server=to_server, to_client=not to_server)
        one = asyncio.create_task(_refusal(client.submit("noop", pool="worker", idempotency_key="one")))
        all_of_many = asyncio.create_task(_refusal(client.submit_many(many)))
        await asyncio.sleep(0.1)  # it is under way now: the next one waits for it
        behind = asyncio.create_task(_refusal(client.submit("noop", pool="worker", idempotency_key="behind")))
        for refusing in (one, all_of_many):
            said, seconds = await refusing
            assert said is OutcomeUnknownError
            assert lease / 3 - 0.1 < seconds < lease / 3 + SLACK / 2
        said, seconds = await behind
        assert said in (OutcomeUnknownError, UnavailableError)
        assert seconds < 2 * lease / 3 + SLACK / 2
        # No connection can be had: this one has not been sent.
        said, seconds = await _refusal(client.submit("noop", pool="worker", idempotency_key="new"))
        assert said is UnavailableError
        assert seconds < lease / 3 + SLACK / 2
        network.heal()
        again = await client.submit("noop", pool="worker", idempotency_key="one")
        assert to_server or not again.created, "it had arrived"
        await client.submit_many(many)
        for key in ("behind", "new"):
            await client.submit("noop", pool="worker", idempotency_key=key)
    async with database.connection() as connection:
        rows = await connection.fetch("select idempotency_key from grns.tasks where idempotency_key <> ''")
    assert sorted(row["idempotency_key"] for row in rows) == sorted(["one", "behind", "new", *keys])
