"""`grns doctor`, `grns explain` and `grns top` beside an installation that runs, is hurt, and is mended."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import START_SECONDS, Fleet, all_in, eventually, manage, ready, submit, submit_many

pytestmark = pytest.mark.timeout(180)

_ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")


async def call(fleet: Fleet, *arguments: str) -> tuple[int, Any]:
    """Run one command line to its end; returns its exit code and the JSON that it wrote."""
    process = fleet.start(*arguments, "-o", "json")
    code = await asyncio.to_thread(process.wait, START_SECONDS)
    written = fleet.log_of(process)
    return code, json.JSONDecoder().raw_decode(written[written.index("{") :])[0]


def of(said: Any, check: str) -> list[tuple[str, str]]:
    """Return what a doctor has found of one check."""
    return [(one["severity"], one["sentence"]) for one in said["findings"] if one["check"] == check]


async def test_what_is_wrong_is_found_while_it_runs(
    fleet: Fleet, database: Database, broker: LocalNats
) -> None:
    server = fleet.start("server", GRNS_JANITOR_INTERVAL_SECONDS="0.5")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "4")
    await ready(database, worker)
    await all_in(database, await submit_many(database, 5), within_seconds=30)

    async def is_well() -> Any:
        """Daemons leave their first traces in their first seconds."""
        code, said = await call(fleet, "doctor")
        return said if code == 0 and said["is_well"] else None

    said = await eventually(is_well, within_seconds=60)
    assert of(said, "pools") == [("ok", "1 live workers in 1 pools, with 4 slots")]
    assert said["versions"]["nats"].startswith("2.")

    odd = (await submit(database, "odd")).id
    (config,) = [
        one["config"]
        for one in (await manage(broker.url, "CONSUMER.LIST.GRNS_CMD"))["consumers"]
        if one["config"]["filter_subject"].endswith("default.worker.p2")
    ]
    request = {"stream_name": "GRNS_CMD", "config": config | {"max_ack_pending": 2}, "action": "update"}
    await manage(broker.url, f"CONSUMER.CREATE.GRNS_CMD.{config['name']}", request)
    fleet.end([server])
    code, said = await call(fleet, "doctor")
    assert code == 1
    assert of(said, "slots")[0][0] == "error"
    assert "its workers have 4 slots" in of(said, "slots")[0][1]
    assert "tasks of the type odd are queued" in of(said, "pools")[0][1]
    assert of(said, "durables")[0][0] == "warning"
    assert "no relay is running" in of(said, "relay")[0][1]

    code, why = await call(fleet, "explain", odd)
    assert (code, why["reason"], why["claim"]) == (0, "no_handler", "no_handler")
    assert "has a handler for odd" in why["sentence"]


@contextmanager
def at_a_terminal(fleet: Fleet, directory: Path, *arguments: str) -> Iterator[tuple[Any, int]]:
    """Run a command at a terminal of its own; lends its process and the other end of the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "grns", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=directory,
        env=os.environ | fleet._environment | {"TERM": "xterm", "COLUMNS": "140", "LINES": "50"},
    )  # fmt: skip
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def shown(terminal: int, wanted: bytes) -> bytes:
    """Read a terminal until something stands there; returns all that was written, without its escapes."""
    os.set_blocking(terminal, False)
    seen, deadline = b"", time.monotonic() + START_SECONDS
    while wanted not in _ESCAPES.sub(b"", seen):
        assert time.monotonic() < deadline, seen[-2000:]
        with suppress(BlockingIOError):
            seen += os.read(terminal, 65536)
        time.sleep(0.01)
    return _ESCAPES.sub(b"", seen)


def drain(terminal: int, process: subprocess.Popen[bytes]) -> int:
    """Read on until a process has ended; returns its exit code."""
    deadline = time.monotonic() + 20
    while process.poll() is None:
        assert time.monotonic() < deadline
        with suppress(BlockingIOError, OSError):
            os.read(terminal, 65536)
        time.sleep(0.01)
    return int(process.returncode)


async def test_top_is_live_until_q_and_ctrl_c(fleet: Fleet, database: Database, tmp_path: Path) -> None:
    fleet.start("daemon", "stats")
    await submit_many(database, 3, agent_type="writer")
    for name, end in (("q", b"q"), ("c", signal.SIGINT)):
        with at_a_terminal(fleet, tmp_path, "top", "--interval", "0.2") as (process, terminal):
            before = termios.tcgetattr(terminal)
            await asyncio.to_thread(shown, terminal, b"writer")
            await submit_many(database, 4, agent_type=f"reader-{name}")
            await asyncio.to_thread(shown, terminal, f"reader-{name}".encode())
            if isinstance(end, bytes):
                os.write(terminal, end)
            else:
                process.send_signal(end)
            assert await asyncio.to_thread(drain, terminal, process) == (0 if name == "q" else 130)
            assert termios.tcgetattr(terminal) == before, "the terminal is as it was"
    code, said = await call(fleet, "top")
    assert code == 0
    assert [pool["queued"] for pool in said["pools"] if pool["agent_type"] == "writer"] == [3]
    assert said["daemons"]["relay_has_leader"] is False
