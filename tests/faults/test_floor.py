"""Without a broker tasks are claimed from Postgres: soon, fast enough, and not for ever."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
import urllib.request
from collections import Counter

import pytest

from grns.dev.servers import LocalNats
from grns.dev.servers.port import HOST, free_port
from grns.postgres.database import Database
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_everything,
    eventually,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)

ROUNDS = 3
TASKS = 500
SAMPLES = 40
# From submitted to claimed, for all but one of a hundred.
PICK_UP_SECONDS = 2.0
# Of the rate with a broker: what is promised.
LEAST_SHARE = 1 / 2
_SUBMIT = "select grns.submit_task('noop', '{}', 'worker') from generate_series(1, $1)"
_CLAIMS = re.compile(r'^grns_claims_total\{.*source="(\w+)".*\} ([0-9.]+)$', re.MULTILINE)


def claims_of(port: int) -> Counter[str]:
    """Return how many tasks a worker has claimed, by where it heard of them, as its metrics tell."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    found: Counter[str] = Counter()
    for source, count in _CLAIMS.findall(text):
        found[source] += int(float(count))
    return found


async def seconds_of(database: Database, count: int) -> float:
    """Return how long it takes until so many short tasks, submitted at once, have ended."""
    began_at = time.monotonic()
    async with database.connection() as connection:
        await connection.fetch(_SUBMIT, count)

        async def have_ended() -> bool:
            return not await connection.fetchval(
                "select exists (select from grns.tasks where finished_at is null)"
            )

        await eventually(have_ended, within_seconds=60)
    return time.monotonic() - began_at


async def comes_by_lane(database: Database, port: int) -> None:
    """Wait until all of some tasks are heard of from the broker."""

    async def look() -> bool:
        before = claims_of(port)
        await all_in(database, await submit_many(database, 20), within_seconds=20)
        return claims_of(port) - before == Counter(priority=20)

    await eventually(look, within_seconds=START_SECONDS)


async def pick_up(database: Database) -> list[float]:
    """Submit tasks one by one, and return how long each waited, in seconds."""
    ids = []
    for _ in range(SAMPLES):
        ids.append((await submit(database)).id)
        await asyncio.sleep(0.02)  # spread over the pauses of whoever looks for them
    rows = await all_in(database, ids, within_seconds=20)
    return [(row["started_at"] - row["created_at"]).total_seconds() for row in rows.values()]


async def test_from_postgres_alone_and_back(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """The broker is there and away by turns, so that what is compared had the same strangers beside it."""
    port = free_port()
    fleet.start("server")
    worker = fleet.start(
        "worker", "start", "tests.support.pools:pool", "--concurrency", "50", GRNS_METRICS_PORT=str(port)
    )
    await ready(database, worker)
    waits: list[float] = []
    shares: list[float] = []
    for _ in range(ROUNDS):
        await comes_by_lane(database, port)
        seconds_with = await seconds_of(database, TASKS)
        await asyncio.to_thread(broker.kill)
        before = claims_of(port)
        waits += await pick_up(database)
        shares.append(seconds_with / await seconds_of(database, TASKS))
        assert claims_of(port) - before == Counter(poll=TASKS + SAMPLES)
        await asyncio.to_thread(broker.start)
    await comes_by_lane(database, port)
    await check_everything(database, broker.url)
    assert sorted(waits)[int(0.99 * len(waits))] <= PICK_UP_SECONDS, sorted(waits)[-5:]
    assert statistics.median(shares) >= LEAST_SHARE, shares
