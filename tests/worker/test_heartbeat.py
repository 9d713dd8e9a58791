"""The heartbeat at its database: what it is asked for between two rounds of renewals, and during one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from grns.bootstrap import heartbeat
from grns.bootstrap.app import App
from grns.bootstrap.heartbeat import HeartbeatConfig
from grns.dev.servers import LocalNats
from grns.model.outcome import Claim
from grns.model.subjects import lease_nudge
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.worker import heartbeat_process as heartbeat_process
from grns.worker import registry as agent
from grns.worker.heartbeat import Heartbeat
from grns.worker.leases import LeaseAnswer, SharedLeaseTable, SlotState
from grns.worker.usage import ProcessUsage
from tests.support.harness import eventually, settings_for, submit
from tests.support.store import WORKER, cancel, claim, fetch, is_waiting_for_lock, stranger

pytestmark = pytest.mark.timeout(60)

LEASE_SECONDS = 60.0  # a round each twenty seconds: what comes sooner was asked for
SOON_SECONDS = 5.0


@pytest.fixture
async def transport(database: Database, broker: LocalNats) -> AsyncIterator[JetStream]:
    """The connection of somebody who cancels."""
    async with App(settings_for(database.url, broker.url)).connections("test") as (_, transport):
        yield transport


@pytest.fixture
async def held(database: Database) -> Claim:
    """What a worker holds."""
    worker = replace(WORKER, lease_seconds=LEASE_SECONDS)
    await agent.register(database, worker, concurrency=1, version="test")
    return await claim(database, (await submit(database)).id, who=worker)


@asynccontextmanager
async def keeping(database: Database, broker: LocalNats, held: Claim) -> AsyncIterator[SharedLeaseTable]:
    """Run the heartbeat process of a worker that holds one lease; shows the worker's table."""
    ours, descriptor = SharedLeaseTable.create(1)
    ours.write(0, 1, SlotState.LEASE, claim=held)
    app = App(settings_for(database.url, broker.url))
    async with app.connections("test heartbeat process") as (its_database, transport):
        heartbeat = Heartbeat(
            workspace="default",
            database=its_database,
            transport=transport,
            table=SharedLeaseTable.attach(descriptor, 1),
            agent_id=WORKER.agent_id,
            lease_seconds=LEASE_SECONDS,
            ack_wait_seconds=LEASE_SECONDS,
            is_worker_running=lambda: True,
            usage=ProcessUsage(os.getpid()),
            emit=app.telemetry.emit,
        )
        running = asyncio.create_task(heartbeat.run())
        yield ours
        heartbeat.stop()
        await running
    ours.close()
    os.close(descriptor)


async def says(table: SharedLeaseTable, verdict: LeaseAnswer) -> bool:
    """Tell whether the heartbeat process's last answer for the lease is this."""
    answer = table.answer_for(0, 1)
    return answer is not None and answer[0] is verdict


async def test_a_cancellation_that_is_hurried_comes_before_the_next_round(
    database: Database, broker: LocalNats, transport: JetStream, held: Claim
) -> None:
    async with keeping(database, broker, held) as table:
        await eventually(lambda: says(table, LeaseAnswer.RENEWED))
        await cancel(database, held.id)
        await transport.nudge(lease_nudge(WORKER.agent_id))
        async with asyncio.timeout(SOON_SECONDS):
            await eventually(lambda: says(table, LeaseAnswer.CANCEL_REQUESTED))


async def test_one_that_is_hurried_during_a_round_does_so_too(
    database: Database, broker: LocalNats, transport: JetStream, held: Claim
) -> None:
    """The round has looked at the lease already, and waits for its last answer."""
    async with stranger(database) as blocker:
        await blocker.execute("select from grns.workers where agent_id = $1 for update", WORKER.agent_id)
        async with keeping(database, broker, held) as table:
            await eventually(
                lambda: is_waiting_for_lock(database, f"grns test heartbeat process {os.getpid()}")
            )
            assert await says(table, LeaseAnswer.RENEWED)
            await cancel(database, held.id)
            await transport.nudge(lease_nudge(WORKER.agent_id))
            await asyncio.sleep(0.3)  # it has come by now
            await blocker.execute("rollback")
            async with asyncio.timeout(SOON_SECONDS):
                await eventually(lambda: says(table, LeaseAnswer.CANCEL_REQUESTED))


async def test_a_round_that_failed_is_done_again_soon(
    database: Database, broker: LocalNats, held: Claim
) -> None:
    """A renewal without an answer may be one that was not written."""
    await fetch(database, "alter table grns.tasks rename column lease_until to lost")
    async with keeping(database, broker, held) as table:
        await eventually(lambda: _has_failed(table))
        assert not table.is_answered
        await fetch(database, "alter table grns.tasks rename column lost to lease_until")
        async with asyncio.timeout(SOON_SECONDS):
            await eventually(lambda: says(table, LeaseAnswer.RENEWED))
            await eventually(lambda: _is_answered(table))


async def _has_failed(table: SharedLeaseTable) -> bool:
    return table.failures > 0


async def _is_answered(table: SharedLeaseTable) -> bool:
    return table.is_answered


async def test_a_heartbeat_that_has_just_come_is_not_missing(
    database: Database, broker: LocalNats, held: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long there was none, and however long it took to start."""
    monkeypatch.setattr(heartbeat_process, "_LEAST_GONE_SECONDS", 0.1)
    table, descriptor = SharedLeaseTable.create(1)
    orders = HeartbeatConfig(
        descriptor, 1, WORKER.agent_id, os.getpid(), settings_for(database.url, broker.url)
    ).dump()
    process = heartbeat_process.HeartbeatProcess(
        module=heartbeat.__name__,
        table_descriptor=descriptor,
        orders=orders,
        lease_seconds=0.01,
        beats=lambda: 0,
        emit=lambda _fact: None,
    )
    await asyncio.sleep(0.2)
    process.look()
    assert process.is_missing
    await process.start()
    process.look()
    assert not process.is_missing
    process.stop()
    table.close()
    os.close(descriptor)


def test_one_whose_worker_died_before_it_gave_orders_ends_in_silence() -> None:
    """It has nothing to keep, and nobody has made a mistake."""
    process = subprocess.run(
        [sys.executable, "-m", heartbeat.__name__, "0", "1"],
        input=b"",
        capture_output=True,
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
