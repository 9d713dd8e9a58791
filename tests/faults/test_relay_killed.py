"""A relay is killed or frozen in the middle of its work: another one goes on, and no event is missing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import nats
import pytest
from nats.aio.msg import Msg

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    Load,
    all_in,
    check_everything,
    committed,
    eventually,
    is_stopped,
    read_stream,
    ready,
    submit,
    submit_many,
)

pytestmark = pytest.mark.timeout(180)

TAKE_OVER_SECONDS = 3.0
SLACK = 2.0
# Between two turns of the answers, so that something is written and not yet on the wire.
SENT = 400

Journal = Callable[[], list[str]]
Relay = subprocess.Popen[bytes]


async def stands_by(fleet: Fleet, relay: Relay) -> None:
    """Wait until a relay is there."""

    async def look() -> bool:
        return bool(fleet.facts_of(relay, "service_started"))

    await eventually(look, within_seconds=START_SECONDS)


async def leads(fleet: Fleet, relay: Relay, *, times: int = 1) -> float:
    """Wait until a relay has taken the lead so many times, and return when it last did."""

    async def look() -> bool:
        return len(fleet.facts_of(relay, "relay_became_leader")) >= times

    await eventually(look, within_seconds=START_SECONDS)
    return datetime.fromisoformat(fleet.facts_of(relay, "relay_became_leader")[-1]["timestamp"]).timestamp()


async def next_leader(fleet: Fleet, relays: list[Relay]) -> Relay:
    """Wait until one of these has taken the lead, and return it."""

    async def look() -> Relay | None:
        return next((relay for relay in relays if fleet.facts_of(relay, "relay_became_leader")), None)

    leader = await eventually(look)
    assert leader is not None
    return leader


async def killed(relay: Relay) -> float:
    """Wait until a relay is gone, and return when it was."""

    async def is_gone() -> bool:
        return relay.poll() is not None

    await eventually(is_gone)
    assert relay.returncode == -signal.SIGKILL
    return time.time()


@dataclass(frozen=True)
class Copy:
    """One copy of a message, as it was sent; `sender` is where its sender awaits the answers."""

    message_id: str
    sender: str


@asynccontextmanager
async def overhearing(url: str) -> AsyncIterator[list[Copy]]:
    """Hear every copy of a message that anybody sends, whether a stream takes it or not."""
    heard: list[Copy] = []

    async def note(message: Msg) -> None:
        heard.append(Copy((message.headers or {})["Nats-Msg-Id"], message.reply.rpartition(".")[0]))

    client = await nats.connect(url)
    try:
        for subject in ("evt.>", "cmd.>", "dlq.>"):
            await client.subscribe(subject, cb=note)
        await client.flush()
        yield heard
    finally:
        await client.close()


async def test_killed_at_each_moment(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """A standby takes over each time, sends again what was not persisted, and leaves nothing out."""
    moments = (
        "relay.read=kill#10",
        "relay.published=kill#101",
        "relay.acknowledged=kill#101",
        "relay.not_persisted=kill#3",
    )
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    short = {"GRNS_RELAY_LEASE_SECONDS": "1"}
    victims = [fleet.start("daemon", "relay", GRNS_FAILPOINTS=moment, **short) for moment in moments]
    await asyncio.gather(ready(database, worker), *(stands_by(fleet, victim) for victim in victims))
    load = Load(database, least=500, part=10)
    died_at = time.time()
    while victims:
        leader = await next_leader(fleet, victims)
        assert await leads(fleet, leader) - died_at < TAKE_OVER_SECONDS + SLACK
        victims.remove(leader)
        if not victims:
            survivor = fleet.start("daemon", "relay", **short)
        died_at = await killed(leader)
    await stands_by(fleet, survivor)
    stood_by_at = time.time()
    assert await leads(fleet, survivor) - max(died_at, stood_by_at) < TAKE_OVER_SECONDS + SLACK
    ids = await load.end()
    await all_in(database, ids, within_seconds=20)
    await check_everything(database, broker.url)


async def test_frozen_in_the_middle_of_a_window(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """Its standby takes over; when it wakes, it sends nothing more than it had written already."""
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    async with database.connection() as connection:
        await connection.execute(
            "update grns.leases set owner = 'other', until = now() + interval '1 h' where name = 'relay'"
        )
    second = fleet.start("daemon", "relay")
    await asyncio.gather(ready(database, worker), stands_by(fleet, second))
    second.send_signal(signal.SIGSTOP)
    # Each task has a chain of events in the log, and together they are more than fits into a window.
    await all_in(database, await submit_many(database, 600), within_seconds=30)
    async with database.connection() as connection:
        await connection.execute("update grns.leases set until = now() where name = 'relay'")
    async with overhearing(broker.url) as heard:
        first = fleet.start("daemon", "relay", GRNS_FAILPOINTS=f"relay.published=stop#{SENT}")

        async def is_frozen() -> bool:
            return is_stopped(first.pid)

        await eventually(is_frozen, within_seconds=START_SECONDS)
        second.send_signal(signal.SIGCONT)
        frozen_at = time.time()
        by_first = heard[0].sender
        assert await leads(fleet, second) - frozen_at < TAKE_OVER_SECONDS + SLACK
        load = Load(database, least=100, part=10)
        await load.reaches(50)

        async def are_all_sent() -> bool:
            return await committed(database, "evt.") <= {copy.message_id for copy in heard}

        await eventually(are_all_sent)
        before_it_woke = len(heard)
        first.send_signal(signal.SIGCONT)

        async def follows() -> bool:
            return bool(fleet.facts_of(first, "relay_became_standby"))

        await eventually(follows)
        ids = await load.end()
        await all_in(database, ids, within_seconds=20)
        await check_everything(database, broker.url)
    assert [copy.sender for copy in heard].count(by_first) == SENT
    # What it had written when it froze came when others had long sent it: the stream took no second copy.
    late = {copy.message_id for copy in heard[before_it_woke:] if copy.sender == by_first}
    assert late
    assert late <= {copy.message_id for copy in heard[:before_it_woke]}
    taken = [one.headers["Nats-Msg-Id"] for one in await read_stream(broker.url, "GRNS_EVT")]
    assert len(taken) == len(set(taken))


async def test_two_of_each_daemon(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal
) -> None:
    """One relay leads at a time; one that was frozen follows when it wakes; one that ends hands it on."""
    short = {"GRNS_LEASE_SECONDS": "2"}
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20", **short)
    first = fleet.start("server", **short)
    await leads(fleet, first)
    second = fleet.start("server", **short)
    await stands_by(fleet, second)
    await ready(database, worker)
    load = Load(database, least=200, part=10, task_type="fail_once")
    delayed = await submit(database, delay_seconds=1.0)

    await load.reaches(50)
    assert not fleet.facts_of(second, "relay_became_leader")
    first.send_signal(signal.SIGSTOP)
    stopped_at = time.time()
    assert await leads(fleet, second) - stopped_at < TAKE_OVER_SECONDS + SLACK
    # While the first one's daemons are frozen, the second one's do all of their work.
    await all_in(database, [*load.ids[:50], delayed.id], within_seconds=10)
    first.send_signal(signal.SIGCONT)

    async def follows() -> bool:
        return bool(fleet.facts_of(first, "relay_became_standby"))

    await eventually(follows)
    second.send_signal(signal.SIGTERM)
    ended_at = time.time()
    assert await leads(fleet, first, times=2) - ended_at < TAKE_OVER_SECONDS
    ids = await load.end()
    await all_in(database, ids, within_seconds=20)
    stories = await check_everything(database, broker.url)
    assert len(fleet.facts_of(second, "relay_became_leader")) == 1
    assert await asyncio.to_thread(second.wait, 10) == 0
    for task_id in ids:
        kinds = [event["kind"].rpartition(".")[2] for event in stories[task_id]]
        assert [kind for kind in kinds if kind != "queued"] == [
            "claimed", "retry_scheduled", "claimed", "completed",
        ]  # fmt: skip
    assert len(journal()) == 2 * len(ids)
