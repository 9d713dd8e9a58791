"""A relay is killed or frozen in the middle of its work: another one goes on, and no event is missing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from datetime import datetime

import pytest

from grns.local import LocalNats
from grns.store.database import Database
from tests.harness import Fleet, Load, all_in, check_stream, eventually, ready

RELAY_LEASE = 2.0
TAKE_OVER_SECONDS = 3.0
SLACK = 1.0
TASKS = 500

Relay = subprocess.Popen[bytes]


async def start_two(fleet: Fleet, database: Database, **environment: str) -> tuple[Relay, Relay]:
    """Start a worker, a relay that leads, and one that stands by; return the relays."""
    worker = fleet.start("worker", "tests.pools:pool", "--concurrency", "20")
    leader = fleet.start("relay", **environment)
    await leads(fleet, leader)
    standby = fleet.start("relay")
    await ready(database, worker)

    async def stands_by() -> bool:
        return bool(fleet.facts_of(standby, "service_started"))

    await eventually(stands_by)
    assert not fleet.facts_of(standby, "relay_leads")
    return leader, standby


async def leads(fleet: Fleet, relay: Relay, *, times: int = 1, within_seconds: float = 20.0) -> float:
    """Wait until a relay has taken the lead so many times, and return when it last did."""

    async def look() -> bool:
        return len(fleet.facts_of(relay, "relay_leads")) >= times

    await eventually(look, within_seconds=within_seconds)
    return datetime.fromisoformat(fleet.facts_of(relay, "relay_leads")[-1]["timestamp"]).timestamp()


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("relay.read=kill#45", id="read"),
        pytest.param("relay.published=kill#701", id="published"),
        pytest.param("relay.acknowledged=kill#701", id="acknowledged"),
        pytest.param("relay.not_persisted=kill#9", id="not_persisted"),
    ],
)
async def test_killed(fleet: Fleet, database: Database, broker: LocalNats, failpoint: str) -> None:
    """The standby takes over, sends again what was not persisted, and leaves nothing out."""
    leader, standby = await start_two(fleet, database, GRNS_FAILPOINTS=failpoint)
    load = Load(database, least=TASKS)

    async def is_dead() -> bool:
        return leader.poll() is not None

    await eventually(is_dead)
    died_at = time.time()
    assert leader.returncode == -signal.SIGKILL
    assert load.ids, "it died before there was anything to publish"
    took_over_at = await leads(fleet, standby)
    assert took_over_at - died_at < TAKE_OVER_SECONDS + SLACK
    ids = await load.end()
    await all_in(database, ids, within_seconds=20)
    await check_stream(database, broker.url)


async def test_frozen_leader(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """One leads at a time; one that was frozen follows when it wakes; one that ends hands the lead on."""
    first, second = await start_two(fleet, database)
    load = Load(database, least=TASKS)

    await load.reaches(100)
    assert not fleet.facts_of(second, "relay_leads")
    first.send_signal(signal.SIGSTOP)
    stopped_at = time.time()
    assert await leads(fleet, second) - stopped_at < TAKE_OVER_SECONDS + SLACK
    await asyncio.sleep(max(0.0, stopped_at + 5.0 - time.time()))  # the fault itself takes this long
    first.send_signal(signal.SIGCONT)

    async def follows() -> bool:
        return bool(fleet.facts_of(first, "relay_follows"))

    await eventually(follows)
    second.send_signal(signal.SIGTERM)
    ended_at = time.time()
    assert await leads(fleet, first, times=2) - ended_at < TAKE_OVER_SECONDS
    ids = await load.end()
    await all_in(database, ids, within_seconds=20)
    await check_stream(database, broker.url)
    assert len(fleet.facts_of(second, "relay_leads")) == 1
