"""What the machine does by itself is seen, and only that."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg

from grns.dev.servers import LocalPostgres
from tests.chaos import journal
from tests.chaos.harm import EVERYBODY, Harms
from tests.chaos.stage import Stage
from tests.chaos.witness import (
    TOO_FEW_TURNS,
    TOO_LONG_SECONDS,
    WINDOW_SECONDS,
    Meter,
    Witness,
    waits_and_turns,
)
from tests.support.harness import eventually

_BUSY = "while True: pass"
_IDLE = "import time; time.sleep(60)"


def test_a_meter_tells_of_a_bad_window_and_of_when_it_began() -> None:
    meter = Meter()
    much, few = TOO_LONG_SECONDS / WINDOW_SECONDS, TOO_FEW_TURNS / WINDOW_SECONDS
    assert [meter.read(at / 4, at / 4 * much * 0.9, 0.0) for at in range(40)] == [None] * 40, (
        "not long enough"
    )
    at, waited = 9.75, 9.75 * much * 0.9
    began = meter.read(at + 3, waited + 3, 0.0)
    assert began is not None
    assert at - WINDOW_SECONDS <= began <= at
    assert meter.read(at + 3.25, waited + 3.25, 0.0) is None, "it was told"
    assert meter.read(at + 5, waited + 5, 0.0) == at + 3, "it goes on"
    busy = [meter.read(at + 6 + n, waited + 5 + n, 2 * few * n) for n in range(1, 9)]
    assert busy == [None] * 8, "who has turns is only one of many"


def test_who_waits_for_a_cpu_is_seen_and_who_waits_for_anything_else_is_not() -> None:
    cpu = {min(os.sched_getaffinity(0))}
    others = [subprocess.Popen([sys.executable, "-c", code]) for code in (_BUSY, _BUSY, _BUSY, _IDLE)]
    try:
        for other in others:
            os.sched_setaffinity(other.pid, cpu)
        time.sleep(0.5)
        before = [_sums(other) for other in others]
        time.sleep(1.5)
        after = [_sums(other) for other in others]
    finally:
        for other in others:
            other.kill()
            other.wait()
    *busy, idle = [(a - b, c - d) for (a, c), (b, d) in zip(after, before, strict=True)]
    assert min(waited for waited, _ in busy) > 0.3
    assert min(turns for _, turns in busy) > 1
    assert idle[0] < 0.1
    assert waits_and_turns(others[0].pid) is None


def _sums(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    return waits_and_turns(process.pid) or (0.0, 0)


async def test_networks_that_stand_still_explain_what_was_lost_meanwhile(
    tmp_path: Path, postgres: LocalPostgres
) -> None:
    stage = Stage(tmp_path)
    stage.postgres = postgres
    witness = Witness(stage)
    began = time.time()
    witness.start()
    await asyncio.sleep(0.3)
    time.sleep(1.2)  # noqa: ASYNC251 - the loop is what is to stand still
    await asyncio.sleep(0.3)
    await witness.stop()
    notes = list(journal.read(tmp_path, "stage.jsonl"))
    (hit,) = [note for note in notes if note["fault"] == "machine: networks stood still"]
    assert hit["whom"] == EVERYBODY
    assert began < hit["from"] < began + 1
    assert 0.75 < hit["until"] - hit["from"] < 5
    harms = Harms()
    for note in notes:
        harms.read(note)
    assert harms.explain_loss("gr-1", 1, began, began + 4)
    assert not harms.explain_loss("gr-1", 1, began - 10, began - 6)
    assert witness.seconds["machine: networks stood still"] > 0.75


async def test_postgres_that_answers_late_explains_what_was_lost_meanwhile(
    tmp_path: Path, postgres: LocalPostgres
) -> None:
    stage = Stage(tmp_path)
    stage.postgres = postgres
    witness = Witness(stage)
    connection = await asyncpg.connect(postgres.url)

    async def asking() -> int | None:
        pid: int | None = await connection.fetchval(
            "select pid from pg_stat_activity where application_name = 'storm witness'"
        )
        return pid

    witness.start()
    pid = await eventually(asking)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(1.5)
    os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(0.5)
    await witness.stop()
    await connection.close()
    (hit,) = [
        note
        for note in journal.read(tmp_path, "stage.jsonl")
        if note["fault"] == "machine: Postgres answered late"
    ]
    assert (hit["whom"], 0.75 < hit["until"] - hit["from"] < 5) == (EVERYBODY, True)
