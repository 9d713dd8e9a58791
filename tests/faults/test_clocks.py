"""Nobody's clock matters but the database's: not those of workers, daemons or clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support import clocks
from tests.support.harness import (
    Fleet,
    all_in,
    check_stories,
    eventually,
    is_relayed,
    read_stream,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)

LEASE = 4.0
DELAY = 3.0
SLACK = 3.0
ENVIRONMENT = {
    "GRNS_LEASE_SECONDS": str(LEASE),
    "GRNS_REAPER_INTERVAL_SECONDS": "0.5",
    "GRNS_JANITOR_INTERVAL_SECONDS": "0.5",
}
DAEMONS = {"relay": "-1y", "reaper": "+1y", "scheduler": "-2h", "janitor": "+1y"}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Clean up after those that were killed."""
    yield
    clocks.tidy()


def year_off(offset: str) -> int:
    """Return the year that a process with such a clock believes it is."""
    said = subprocess.run(
        [sys.executable, "-c", "import datetime; print(datetime.date.today().year)"],
        env=clocks.wrong(offset), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(said.stdout)


def test_the_clocks_here_are_wrong() -> None:
    """Else the other test shows nothing."""
    year = datetime.now(UTC).year
    assert {year_off("-2y"), year_off("+2y")} & {year - 2, year + 2} == {year - 2, year + 2}


def start(fleet: Fleet, offset: str) -> subprocess.Popen[bytes]:
    """Start a worker whose clock is wrong."""
    return fleet.start(
        "worker",
        "start",
        "tests.support.pools:pool",
        "--concurrency",
        "5",
        **ENVIRONMENT,
        **clocks.wrong(offset),
    )


async def test_everybody_has_another_time(
    fleet: Fleet, database: Database, broker: LocalNats, journal: object, tmp_path: Path
) -> None:
    for daemon, offset in DAEMONS.items():
        fleet.start("daemon", daemon, **ENVIRONMENT, **clocks.wrong(offset))
    early, late = start(fleet, "-2h"), start(fleet, "+1y")
    await ready(database, early, late)
    began = datetime.now(UTC)
    at_once = await submit_many(database, 40, task_type="fail_once")
    delayed = (await submit(database, delay_seconds=DELAY)).id
    await all_in(database, [*at_once, delayed], within_seconds=DELAY + 10.0)

    held = await submit_many(database, 10, task_type="until", payload={"file": str(tmp_path / "go")})
    await all_in(database, held, "running", within_seconds=10.0)
    early.kill()
    taken = await _taken_back(database)
    assert taken, "the victim held nothing"
    assert all(0.0 <= seconds < SLACK for seconds in taken.values()), "by the lease, not sooner or much later"
    (tmp_path / "go").touch()
    await all_in(database, held, within_seconds=20.0)

    handed_in = fleet.start(
        "task", "submit", "noop", "--wait", "-o", "json", **ENVIRONMENT, **clocks.wrong("-1y")
    )
    assert handed_in.wait(30) == 0
    said = fleet.log_of(handed_in)
    by_hand = json.loads(said[said.index("{") :])["id"]

    everything = [*at_once, delayed, *held, by_hand]
    stories = await check_stories(database, everything)
    assert len(stories) == len(everything), "the janitor deletes nothing before its time"
    waiting, queued, *_ = stories[delayed]
    due_at = datetime.fromisoformat(json.loads(waiting["payload"])["next_attempt_at"])
    assert timedelta(seconds=DELAY - 1.0) < due_at - waiting["created_at"] <= timedelta(seconds=DELAY)
    assert timedelta() <= queued["created_at"] - due_at < timedelta(seconds=SLACK)
    await eventually(lambda: is_relayed(database))
    for heard in await read_stream(broker.url, "GRNS_EVT"):
        told_at = datetime.fromisoformat(heard.body["emitted_at"])
        assert abs(told_at - began) < timedelta(minutes=5), "events have the database's time"


async def _taken_back(database: Database) -> dict[str, float]:
    """Wait until nobody holds what the victim held; return how long after its lease each was taken back."""

    async def look() -> dict[str, float]:
        async with database.connection() as connection:
            rows = await connection.fetch(
                "select task_id,"
                " extract(epoch from created_at - (payload->>'lease_until')::timestamptz)::float8 as late"
                " from grns.events where kind = 'evt.task.lease_expired'"
            )
        return {row["task_id"]: row["late"] for row in rows}

    await eventually(look, within_seconds=LEASE + SLACK + 5.0)
    return await look()
