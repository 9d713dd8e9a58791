"""Operations in processes that are killed, frozen and cut off: nothing is done twice or left out."""

from __future__ import annotations

import asyncio
import signal
import subprocess

import pytest

from grns.dev.servers import LocalNats
from grns.operations.model import State
from grns.postgres.database import Database
from tests.support.harness import START_SECONDS, Fleet, all_in, check_stream, eventually, is_stopped
from tests.support.operations import asked, dead_tasks, in_state, lapse_of, redrives, seen

pytestmark = pytest.mark.timeout(240)

MOMENTS = (
    "take_operation.asked",
    "take_operation.answered",
    "operation.taken",
    "operation.read",
    "redrive_batch.asked",
    "redrive_batch.answered",
    "follow_operation.answered",
)


async def gone(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has been killed."""

    async def is_gone() -> bool:
        return process.poll() is not None

    await eventually(is_gone, within_seconds=START_SECONDS)
    assert process.returncode == -signal.SIGKILL


async def test_killed_at_each_moment(fleet: Fleet, database: Database, broker: LocalNats) -> None:
    """Then a worker runs what was redriven, and the log and the stream say so."""
    ids = await dead_tasks(database, 650)
    made = await asked(database)
    for moment in MOMENTS:
        await gone(fleet.start("daemon", "operations", GRNS_FAILPOINTS=f"{moment}=kill#1"))
        await lapse_of(database, made)
    assert 0 < (await seen(database, made)).moved < 650
    fleet.start("server")
    done = await in_state(database, made, State.DONE, within_seconds=START_SECONDS)
    assert (done.moved, done.skipped) == (650, 0)
    assert await redrives(database) == dict.fromkeys(ids, 1)
    fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "20")
    await all_in(database, ids, within_seconds=START_SECONDS)
    await check_stream(database, broker.url)

    async def are_counted() -> bool:
        return (await seen(database, made)).succeeded == 650

    await eventually(are_counted)


async def test_cut_off_before_and_after_each_statement(fleet: Fleet, database: Database) -> None:
    """Whoever does not hear whether a batch was moved reads how far the operation is."""
    ids = await dead_tasks(database, 600)
    made = await asked(database)
    points = ",".join(
        f"{name}.{when}=drop@0.2"
        for name in ("take_operation", "redrive_batch", "follow_operation")
        for when in ("asked", "answered")
    )
    fleet.start("daemon", "operations", GRNS_FAILPOINTS=points)
    done = await in_state(database, made, State.DONE, within_seconds=START_SECONDS)
    assert done.moved == 600
    assert await redrives(database) == dict.fromkeys(ids, 1)


async def test_frozen_with_a_batch_in_hand_and_woken(fleet: Fleet, database: Database) -> None:
    """Others have moved it meanwhile, and its late statement moves nothing."""
    ids = await dead_tasks(database, 450)
    made = await asked(database)
    victim = fleet.start("daemon", "operations", GRNS_FAILPOINTS="operation.read=stop#2")

    async def is_frozen() -> bool:
        return is_stopped(victim.pid)

    await eventually(is_frozen, within_seconds=START_SECONDS)
    assert (await seen(database, made)).moved == 200
    await lapse_of(database, made)
    fleet.start("daemon", "operations")
    done = await in_state(database, made, State.DONE, within_seconds=START_SECONDS)
    victim.send_signal(signal.SIGCONT)
    await asyncio.to_thread(fleet.end, [victim])
    assert victim.returncode == 0
    assert await seen(database, made) == done
    assert await redrives(database) == dict.fromkeys(ids, 1)
