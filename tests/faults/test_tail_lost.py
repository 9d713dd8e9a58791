"""A power cut: the broker comes back with its streams as they were a while ago, their ends missing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import (
    Fleet,
    all_in,
    check_everything,
    eventually,
    is_relayed,
    manage,
    ready,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)


async def events_of(broker: LocalNats) -> tuple[str, int]:
    """Return which stream of events it is, and its last number."""
    info = await manage(broker.url, "STREAM.INFO.GRNS_EVT")
    return info["created"], info["state"]["last_seq"]


@pytest.mark.parametrize("goes_on", [False, True], ids=["nothing happens", "tasks go on"])
async def test_what_stood_at_the_end_is_published_again(
    fleet: Fleet, database: Database, broker: LocalNats, tmp_path: Path, goes_on: bool
) -> None:
    relay = fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "10")
    await ready(database, worker)
    await all_in(database, await submit_many(database, 50), within_seconds=30)
    await eventually(lambda: is_relayed(database), within_seconds=10)
    await asyncio.to_thread(broker.stop)
    shutil.copytree(broker.store, tmp_path / "store")
    await asyncio.to_thread(broker.start)
    ids = await submit_many(database, 100)
    dying = await submit_many(database, 3, task_type="fail_once", max_attempts=1)
    await all_in(database, ids, within_seconds=30)
    await all_in(database, dying, "dead", within_seconds=30)
    await eventually(lambda: is_relayed(database), within_seconds=30)
    life, last_seq = await events_of(broker)

    await asyncio.to_thread(broker.kill)
    shutil.rmtree(broker.store)
    shutil.copytree(tmp_path / "store", broker.store)
    await asyncio.to_thread(broker.start)
    if goes_on:
        await all_in(database, await submit_many(database, 50), within_seconds=30)
    else:
        cut = await events_of(broker)
        assert cut[0] == life, "it is the same stream"

    async def is_noticed() -> bool:
        return any("end" in fact["reason"] for fact in fleet.facts_of(relay, "broker_lost_messages"))

    await eventually(is_noticed, within_seconds=45)
    await check_everything(database, broker.url, has_lost=True)
    assert (await events_of(broker))[1] >= last_seq
