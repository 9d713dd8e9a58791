"""Three brokers: leaders change, die and come back empty in the middle of the relay's window."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from grns.nats.client import ANSWER_SECONDS
from grns.postgres.database import Database
from tests.chaos import journal as notes
from tests.chaos.journal import Journal
from tests.chaos.observer import Follower, follow_for_ever
from tests.support.cluster import Cluster, cluster
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    Load,
    all_in,
    check_everything,
    committed,
    eventually,
    is_relayed,
    ready,
    submit_many,
)

pytestmark = pytest.mark.timeout(240)

STREAMS = ("GRNS_EVT", "GRNS_CMD")
BURST = 200
# From the death of a leader until the log has drained: an election takes up to 9 s, an answer 5 s.
DRAINED_SECONDS = 40.0
SLACK = 4.0


@pytest.fixture
async def three(directory: Path) -> AsyncIterator[Cluster]:
    """Three brokers that serve."""
    brokers = cluster(directory / f"cluster-{uuid.uuid4().hex}")
    three = Cluster(brokers)
    try:
        await three.start()
        yield three
    finally:
        for broker in brokers:
            await asyncio.to_thread(broker.kill)


@pytest.fixture
def fleet(tmp_path: Path, database_url: str, three: Cluster) -> Iterator[Fleet]:
    """Processes of grns that use the three."""
    environment = {
        "GRNS_DATABASE_URL": database_url,
        "GRNS_NATS_URL": three.urls,
        "GRNS_NATS_REPLICAS": "3",
        "GRNS_LOG_FORMAT": "json",
        "GRNS_LOG_LEVEL": "debug",
        "PYTHONPATH": str(Path(__file__).parent.parent.parent),
    }
    fleet = Fleet(tmp_path, environment)
    yield fleet
    fleet.end()


class Witness:
    """Follows the events with a plain client while they are published, whichever broker is there."""

    def __init__(self, directory: Path, three: Cluster) -> None:
        self._directory = directory
        self._follower = Follower("GRNS_EVT", Journal(directory / "seen-1.jsonl"), directory)
        self._three = three
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        await follow_for_ever(self._follower, self._three.urls)

    def first_copies(self) -> list[tuple[str, int, str]]:
        """Return what it was told: task, version and message id of each event's first copy, in order."""
        firsts: dict[str, tuple[str, int, str]] = {}
        for note in notes.read(self._directory, "seen-*.jsonl"):
            if note["what"] == "seen":
                firsts.setdefault(note["id"], (note["task"], note["version"], note["id"]))
        return list(firsts.values())

    async def hears_more(self, *, within_seconds: float) -> None:
        """Wait until it is told something that it has not been told yet."""
        before = len(self.first_copies())

        async def look() -> bool:
            return len(self.first_copies()) > before

        await eventually(look, within_seconds=within_seconds, every=0.1)

    async def leave(self) -> None:
        """Read to the end."""
        self._follower.is_leaving = True
        await asyncio.wait_for(self._following, 30)


async def check_told(database: Database, witness: Witness) -> None:
    """Check what the witness was told while it happened: each event, no other, in order per task."""
    await witness.leave()
    latest: dict[str, int] = {}
    ids: set[str] = set()
    for task, version, message_id in witness.first_copies():
        assert version == latest.get(task, 0) + 1, (task, version)
        latest[task] = version
        ids.add(message_id)
    assert ids == await committed(database, "evt.")


async def in_the_middle(
    three: Cluster, database: Database, load: Load, act: Callable[[], Awaitable[object]]
) -> None:
    """Have more events on their way than arrive at once, and act while they arrive."""
    before = (await last_seq(three)) or 0
    load.ids += await submit_many(database, BURST)

    async def are_arriving() -> bool:
        arrived = await last_seq(three)
        if arrived is None or arrived < before + BURST // 4:
            return False
        if arrived >= len(await committed(database, "evt.")):  # they have all arrived: once more
            load.ids += await submit_many(database, BURST)
            return False
        return True

    await eventually(are_arriving, every=0.0)
    await act()


async def last_seq(three: Cluster) -> int | None:
    """Return how many events the stream has taken, None where nobody knows."""
    found = await three.info("GRNS_EVT")
    return None if found is None else int(found["state"]["last_seq"])


async def is_through(database: Database) -> None:
    """Wait until the log has been published to its end."""
    await eventually(lambda: is_relayed(database), within_seconds=DRAINED_SECONDS)


async def starts(fleet: Fleet, database: Database, three: Cluster) -> subprocess.Popen[bytes]:
    """Start a worker and the daemons, and return the worker once tasks go the whole way."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    await ready(database, worker)
    await all_in(database, await submit_many(database, 10), within_seconds=START_SECONDS)
    await is_through(database)
    assert [await three.is_whole(stream) for stream in STREAMS] == [True, True]
    return worker


async def test_leaders_change_die_and_come_back_empty(
    fleet: Fleet, database: Database, three: Cluster, tmp_path: Path
) -> None:
    """Each time in the middle of the relay's window, while tasks flow: every event, once, in order."""
    await starts(fleet, database, three)
    witness = Witness(tmp_path, three)
    load = Load(database, least=600, part=5)
    await load.reaches(25)
    for stream in (*STREAMS, *STREAMS):
        await in_the_middle(three, database, load, partial(three.step_down, stream))

    leader = await three.leader("GRNS_EVT")
    await in_the_middle(three, database, load, partial(asyncio.to_thread, leader.kill))
    assert await three.leader("GRNS_EVT") is not leader
    # How long the brokers take to elect one is their affair; what was sent meanwhile is sent again then.
    await witness.hears_more(within_seconds=ANSWER_SECONDS + SLACK)
    await load.reaches(len(load.ids) + 50)
    await three.start([leader])
    # A majority has to have what was acknowledged before one of those who have it forgets it.
    await eventually(lambda: three.is_whole(*STREAMS), within_seconds=DRAINED_SECONDS, every=0.2)
    await in_the_middle(three, database, load, partial(asyncio.to_thread, leader.wipe))
    await load.reaches(len(load.ids) + 50)
    ids = await load.end()
    await all_in(database, ids, within_seconds=DRAINED_SECONDS)
    await is_through(database)
    await eventually(lambda: three.is_whole(*STREAMS), within_seconds=DRAINED_SECONDS, every=0.2)
    await check_told(database, witness)
    await check_everything(database, (await three.leader("GRNS_EVT")).url)


async def test_two_of_three_away(fleet: Fleet, database: Database, three: Cluster, tmp_path: Path) -> None:
    """One broker alone takes nothing: tasks are found in Postgres, and the log drains in order afterwards."""
    worker = await starts(fleet, database, three)
    witness = Witness(tmp_path, three)
    load = Load(database, least=100, part=10)
    await load.reaches(20)
    alone = await three.leader("GRNS_EVT")
    others = [broker for broker in three.brokers if broker is not alone]
    for broker in others:
        await asyncio.to_thread(broker.kill)
    before = len(load.ids)
    await load.reaches(before + 300)
    rows = await all_in(database, load.ids[: before + 300], within_seconds=10)
    assert {row["attempt"] for row in rows.values()} == {1}
    found = {fact["task_id"]: fact["source"] for fact in fleet.facts_of(worker, "task_claimed")}
    # What is submitted from one part of the load to the next may still have been published.
    assert {found[task_id] for task_id in load.ids[before + 10 : before + 300]} == {"poll"}
    assert not await is_relayed(database)
    await three.start(others)
    ids = await load.end()
    await all_in(database, ids, within_seconds=DRAINED_SECONDS)
    await is_through(database)
    await check_told(database, witness)
    await check_everything(database, (await three.leader("GRNS_EVT")).url)
