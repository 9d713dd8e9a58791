"""A counter that dies at any moment: the next one goes on exactly there."""

from __future__ import annotations

import signal

import pytest

from grns.postgres.database import Database
from tests.support.aggregators import counted, there
from tests.support.harness import START_SECONDS, Fleet, eventually
from tests.support.store import place

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "failpoint",
    [
        "acquire_lease.answered=kill#1", "read_numbers.answered=kill#1", "read_numbers.answered=kill#3",
        "stats.read=kill#1", "stats.read=kill#2", "count_log.asked=kill#1", "count_log.asked=kill#2",
        "count_log.answered=kill#1", "count_log.answered=kill#2",
    ],
)  # fmt: skip
async def test_killed(fleet: Fleet, database: Database, failpoint: str) -> None:
    """Before it has counted, and after, without having heard that it has."""
    for road in ("succeeded", "dead", "running"):
        await place(database, road)
    victim = fleet.start("daemon", "stats", GRNS_FAILPOINTS=failpoint)

    async def is_dead() -> bool:
        await place(database, "cancelled")
        return victim.poll() is not None

    await eventually(is_dead, within_seconds=START_SECONDS, every=0.2)
    fleet.start("daemon", "stats")

    async def are_right() -> bool:
        return await counted(database) == await there(database)

    await eventually(are_right, within_seconds=START_SECONDS)


async def test_frozen_and_woken(fleet: Fleet, database: Database) -> None:
    """What it had read before it froze another one has counted: it counts nothing of it again."""
    await place(database, "succeeded")
    frozen = fleet.start("daemon", "stats", GRNS_FAILPOINTS="stats.read=stop#1")

    async def has_frozen() -> bool:
        return "failpoint stats.read" in fleet.log_of(frozen)

    await eventually(has_frozen, within_seconds=START_SECONDS)
    fleet.start("daemon", "stats")

    async def are_right() -> bool:
        return await counted(database) == await there(database)

    await eventually(are_right, within_seconds=START_SECONDS)
    frozen.send_signal(signal.SIGCONT)

    async def has_woken() -> bool:
        await place(database, "dead")
        return bool(fleet.facts_of(frozen, "stats_became_standby"))

    await eventually(has_woken, within_seconds=START_SECONDS, every=0.2)
    await eventually(are_right, within_seconds=START_SECONDS)
