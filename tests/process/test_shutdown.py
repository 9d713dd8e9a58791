"""A worker that is asked to end gives back what it has, and spends nothing of it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grns.dev.servers import LocalNats, LocalPostgres
from grns.model import subjects
from grns.postgres.database import Database
from tests.support.harness import (
    START_SECONDS,
    Fleet,
    all_in,
    check_everything,
    children_of,
    eventually,
    is_alive,
    lines_with,
    manage,
    ready,
    rows_of,
    submit,
    submit_many,
)
from tests.support.store import fetch

pytestmark = pytest.mark.timeout(180)

LEASE = 2.5
GRACE = 4.0
SLACK = 4.0
SHORT = {"seconds": 0.08}
PRIORITY_SUBJECT = subjects.durable(subjects.priority_subject("default", "worker", 2))

Journal = Callable[[], list[str]]
Worker = subprocess.Popen[bytes]


def environment(grace: float) -> dict[str, str]:
    """Return settings with which only the broker says what there is to do."""
    return {
        "GRNS_LEASE_SECONDS": str(LEASE),
        "GRNS_SHUTDOWN_GRACE_SECONDS": str(grace),
        "GRNS_POLL_AFTER_SECONDS": "60",
    }


def start_worker(fleet: Fleet, grace: float) -> Worker:
    """Start a worker of three slots."""
    return fleet.start(
        "worker", "start", "tests.support.pools:pool", "--concurrency", "3", **environment(grace)
    )


async def all_begun(journal: Journal, ids: list[str], attempt: int = 1) -> None:
    """Wait until the handlers of all these tasks have begun."""

    async def look() -> bool:
        return all(f"begin {task_id} {attempt}" in journal() for task_id in ids)

    await eventually(look)


async def holds(broker: LocalNats, least: int) -> None:
    """Wait until the worker has fetched so many commands and settled none of them."""

    async def look() -> bool:
        info = await manage(broker.url, f"CONSUMER.INFO.GRNS_CMD.{PRIORITY_SUBJECT}")
        return bool(info["num_ack_pending"] >= least)

    await eventually(look)


async def ends(worker: Worker, within_seconds: float) -> int:
    """Wait until a process has ended, and return its exit code."""

    async def has_ended() -> bool:
        return worker.poll() is not None

    await eventually(has_ended, within_seconds=within_seconds)
    return int(worker.returncode)


async def test_asked_to_end(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, tmp_path: Path
) -> None:
    """What waits goes to others at once, what runs may end, the rest is released: no attempt is spent."""
    server = fleet.start("server", **environment(GRACE))
    leaver = start_worker(fleet, GRACE)
    await ready(database, leaver)
    # Short tasks make it fetch ahead, and not claim ahead.
    for _ in range(2):
        await all_in(
            database, await submit_many(database, 30, task_type="effect", payload=SHORT), within_seconds=10
        )
    soon, late = tmp_path / "soon", tmp_path / "late"
    ending = await submit(database, "until", payload={"file": str(soon)}, max_attempts=1)
    on_loop = await submit(database, "until", payload={"file": str(late)}, max_attempts=1)
    in_thread = await submit(database, "until_in_thread", payload={"file": str(late)}, max_attempts=1)
    await all_begun(journal, [ending.id, on_loop.id, in_thread.id])
    waiting = await submit_many(database, 5)
    await holds(broker, 3 + 2)
    heir = start_worker(fleet, GRACE)
    await ready(database, heir)

    leaver.send_signal(signal.SIGTERM)
    asked_at = time.monotonic()
    await asyncio.sleep(0.1)
    leaver.send_signal(signal.SIGTERM)  # as an init system and a parent do it: no second request
    rows = await all_in(database, waiting, within_seconds=LEASE - 0.5)
    assert {row["attempt"] for row in rows.values()} == {1}
    soon.touch()
    rows = await all_in(database, [ending.id], within_seconds=asked_at + GRACE - time.monotonic())
    assert rows[ending.id]["attempt"] == 1
    assert leaver.poll() is None, "two of its tasks may still go on"
    # Its leases are kept beyond their first end, until it gives them up.
    await all_begun(journal, [on_loop.id, in_thread.id], attempt=2)
    assert GRACE - 0.5 < time.monotonic() - asked_at < GRACE + SLACK
    assert await ends(leaver, SLACK) == 0
    late.touch()
    rows = await all_in(database, [on_loop.id, in_thread.id], within_seconds=SLACK)
    assert {(row["attempt"], row["uncounted_attempts"]) for row in rows.values()} == {(2, 1)}
    stories = await check_everything(database, broker.url)
    for task_id in rows:
        assert [event["kind"].rpartition(".")[2] for event in stories[task_id]] == [
            "queued", "claimed", "released", "claimed", "completed",
        ]  # fmt: skip
    assert f"cancelled {on_loop.id} 1" in journal()
    assert f"told {in_thread.id} 1" in journal()
    # Those that have nothing to do end at once.
    for process in (heir, server):
        process.send_signal(signal.SIGTERM)
    assert set(await asyncio.gather(ends(heir, SLACK), ends(server, SLACK))) == {0}


async def test_asked_before_postgres_has_the_schema(fleet: Fleet, postgres: LocalPostgres) -> None:
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_DATABASE_URL=postgres.url)

    async def says_why() -> bool:
        return "grns admin db upgrade" in fleet.log_of(worker)

    await eventually(says_why, within_seconds=START_SECONDS)
    worker.send_signal(signal.SIGTERM)
    assert await ends(worker, SLACK) == 0


async def test_asked_while_tasks_are_claimed_ahead(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, tmp_path: Path
) -> None:
    """They have not begun: they are given back at once, and the attempts do not count."""
    fleet.start("server", **environment(GRACE))
    leaver = start_worker(fleet, GRACE)
    await ready(database, leaver)
    await all_in(database, await submit_many(database, 60), within_seconds=10)  # very short ones
    file = tmp_path / "file"
    running = await submit_many(database, 3, task_type="until", payload={"file": str(file)})
    await all_begun(journal, running)
    ahead = await submit_many(database, 3)
    await all_in(database, ahead, "running", within_seconds=5)
    leaver.send_signal(signal.SIGTERM)
    await all_in(database, ahead, "queued", within_seconds=SLACK)
    start_worker(fleet, GRACE)
    rows = await all_in(database, ahead, within_seconds=START_SECONDS)
    assert {(row["attempt"], row["uncounted_attempts"]) for row in rows.values()} == {(2, 1)}
    file.touch()
    await all_in(database, running, within_seconds=SLACK)
    assert await ends(leaver, GRACE + SLACK) == 0
    await check_everything(database, broker.url)


async def test_asked_while_the_broker_is_silent(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, tmp_path: Path
) -> None:
    """It takes up nothing more from when it is asked, also while it cannot yet give back what it has."""
    fleet.start("server", **environment(GRACE))
    leaver = start_worker(fleet, GRACE)
    await ready(database, leaver)
    for _ in range(2):
        await all_in(
            database, await submit_many(database, 30, task_type="effect", payload=SHORT), within_seconds=10
        )
    file = tmp_path / "file"
    running = await submit_many(database, 3, task_type="until", payload={"file": str(file)})
    await all_begun(journal, running)
    waiting = await submit_many(database, 5)
    await holds(broker, 3 + 2)
    broker.freeze()
    leaver.send_signal(signal.SIGTERM)
    await eventually(lambda: _is_stopping(fleet, leaver))
    file.touch()
    await all_in(database, running, within_seconds=SLACK)
    assert await ends(leaver, GRACE + 2 * SLACK) == 0
    assert {row["status"] for row in (await rows_of(database, waiting)).values()} == {"queued"}
    broker.thaw()
    await ready(database, start_worker(fleet, GRACE))
    rows = await all_in(database, waiting, within_seconds=LEASE + SLACK)
    assert {row["attempt"] for row in rows.values()} == {1}


async def _is_stopping(fleet: Fleet, worker: Worker) -> bool:
    return any(fact["service"] == "poller" for fact in fleet.facts_of(worker, "service_stopped"))


async def test_asked_twice(
    fleet: Fleet, database: Database, broker: LocalNats, journal: Journal, tmp_path: Path
) -> None:
    """The second signal ends it at once: its tasks are run by others when their leases are over."""
    fleet.start("server", **environment(60))
    leaver = start_worker(fleet, 60)
    await ready(database, leaver)
    heartbeats = children_of(leaver.pid)
    file = tmp_path / "file"
    ids = await submit_many(database, 3, task_type="until", payload={"file": str(file)}, max_attempts=2)
    await all_begun(journal, ids)
    heir = start_worker(fleet, 60)
    await ready(database, heir)
    leaver.send_signal(signal.SIGINT)
    await eventually(lambda: _is_stopping(fleet, leaver))
    await asyncio.sleep(0.6)  # what comes sooner counts as the same request
    assert {row["status"] for row in (await rows_of(database, ids)).values()} == {"running"}
    leaver.send_signal(signal.SIGTERM)
    assert await ends(leaver, 1.0 + SLACK) == 130

    async def are_gone() -> bool:
        return not any(is_alive(pid) for pid in heartbeats)

    await eventually(are_gone)
    await all_begun(journal, ids, attempt=2)
    file.touch()
    await all_in(database, ids, within_seconds=SLACK)
    stories = await check_everything(database, broker.url)
    for task_id in ids:
        assert [event["kind"].rpartition(".")[2] for event in stories[task_id]] == [
            "queued", "claimed", "lease_expired", "claimed", "completed",
        ]  # fmt: skip
    assert len(lines_with(journal(), "begin")) == 2 * len(ids)
    assert len(lines_with(journal(), "end")) == len(ids)


async def test_asked_twice_while_its_loop_is_blocked(
    fleet: Fleet, database: Database, journal: Journal
) -> None:
    """When the loop comes round again both requests lie there: they came one after the other all the same."""
    fleet.start("server", **environment(60))
    leaver = start_worker(fleet, 60)
    await ready(database, leaver)
    (blocking,) = await submit_many(
        database, 1, task_type="block_loop", payload={"how": "sleep_on", "seconds": 30.0}
    )
    await all_begun(journal, [blocking])
    leaver.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.7)
    leaver.send_signal(signal.SIGTERM)
    assert await ends(leaver, SLACK) == 130


@pytest.mark.parametrize("task_type", ["in_loops_thread", "stubborn"])
async def test_what_cannot_be_ended_does_not_keep_the_process(
    fleet: Fleet, database: Database, journal: Journal, task_type: str
) -> None:
    """A handler's call in one of the loop's threads, and one that goes on when it is cancelled."""
    fleet.start("server", **environment(0.5))
    leaver = start_worker(fleet, 0.5)
    await ready(database, leaver)
    ids = await submit_many(database, 1, task_type=task_type, payload={"seconds": 60.0})
    await all_begun(journal, ids)
    leaver.send_signal(signal.SIGTERM)
    assert await ends(leaver, 0.5 + 5.0 + SLACK) == 0


async def test_interrupted_while_it_waits_for_postgres(fleet: Fleet) -> None:
    """There is nothing to stop yet: it ends at once, as whatever is interrupted, and not as by a bug."""
    silent = socket.create_server(("127.0.0.1", 0))
    url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/grns"
    worker = fleet.start("worker", "start", "tests.support.pools:pool", GRNS_DATABASE_URL=url)
    silent.settimeout(START_SECONDS)
    connection, _ = await asyncio.to_thread(silent.accept)
    with silent, connection:
        worker.send_signal(signal.SIGINT)
        assert await ends(worker, SLACK) == 130
    assert "Traceback" not in fleet.log_of(worker)


_EARLY = """
import asyncio, os, signal, sys
from grns.cli import process
from grns.settings import load

async def work():
    os.kill(os.getpid(), signal.SIGINT)  # what handles it is the loop's own: it cancels us
    process._handle_signals(lambda: None)
    await asyncio.sleep(30)

process.run(load(loop=sys.argv[1]), lambda: process.end_after(work()))
"""


@pytest.mark.parametrize("loop", ["auto", "asyncio"])
def test_interrupted_just_before_it_listens(loop: str) -> None:
    """What the loop was told before its services could hear comes to them as their end, not as a bug."""
    done = subprocess.run(
        [sys.executable, "-c", _EARLY, loop], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 130, done.stderr
    assert not done.stderr


async def test_a_worker_that_is_stopped_as_it_starts_signs_off(fleet: Fleet, database: Database) -> None:
    async with database.transaction() as holding:
        await holding.execute("lock table grns.task_types in access exclusive mode")
        worker = start_worker(fleet, GRACE)

        async def has_registered() -> bool:
            return bool(await fetch(database, "select from grns.workers"))

        async def has_signed_off() -> bool:
            return bool(await fetch(database, "select from grns.workers where stopped_at is not null"))

        await eventually(has_registered, within_seconds=START_SECONDS)
        worker.send_signal(signal.SIGTERM)
        await eventually(has_signed_off, within_seconds=SLACK)
    assert await ends(worker, SLACK) == 0
