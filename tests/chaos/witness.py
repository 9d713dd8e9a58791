"""What the machine did to those on the stage by itself: no CPU, no disk, networks that stand still.

A lease that ran out in such a moment was lost by nobody's fault, and nothing else would tell of it. What is
looked at does not grow while a process waits for anything but the machine, so a bug cannot hide behind it:
the time for which a process could have run and was not let (`schedstat`), where it had few turns; what the
host of a virtual machine took of all CPUs (`steal`); how long a write of our own took to reach the disk;
how late the loop was that carries everybody's bytes to the servers; and how long Postgres took for a
`select 1` on a connection of ours, past all networks and locks.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict, deque
from contextlib import suppress
from pathlib import Path

import asyncpg

from tests.chaos.harm import EVERYBODY
from tests.chaos.stage import Stage
from tests.chaos.strangers import AWAY

_BEAT_SECONDS = 0.1
_LOOK_SECONDS = 0.25
_DISK_SECONDS = 1.0
_CHILDREN_SECONDS = 2.0
WINDOW_SECONDS = 2.0
# Who waits for so much of a window, and has no more turns than that, waits 50 ms for each. Many short waits
# are what everybody has on a busy machine.
TOO_LONG_SECONDS = 1.3
TOO_FEW_TURNS = 26
_TOO_MUCH_STOLEN_SECONDS = 2.0  # of all CPUs
TOO_LATE_SECONDS = 0.75
_ANSWER_SECONDS = 30.0
_NAMED = {"application_name": "storm witness"}
_STEAL = 8
_WATCHED = ("worker", "scout")


class Meter:
    """Two sums that grow: says when, within a window, one grew too much and the other too little."""

    def __init__(self, too_much: float = TOO_LONG_SECONDS, too_little: float = TOO_FEW_TURNS) -> None:
        self._too_much = too_much
        self._too_little = too_little
        self._seen: deque[tuple[float, float, float]] = deque()

    def read(self, at: float, bad: float, good: float) -> float | None:
        """Take in the sums at a time. Where that was a bad window, returns the time at which it began."""
        while len(self._seen) > 1 and self._seen[1][0] <= at - WINDOW_SECONDS:
            self._seen.popleft()
        self._seen.append((at, bad, good))
        since, bad_then, good_then = self._seen[0]
        grown = bad - bad_then
        if grown < self._too_much or good - good_then > self._too_little:
            return None
        self._seen = deque([(at, bad, good)])
        return min(since, at - grown)  # what a process waited for is counted when it has got it


class Witness:
    """Looks at the machine while the storm goes on, and writes into the stage's journal what it did."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stolen = Meter(_TOO_MUCH_STOLEN_SECONDS)
        self._meters: dict[int, Meter] = {}
        self._pids: dict[int, str] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looked_for_pids_at = 0.0
        self._wrote_at = 0.0
        self.seconds: dict[str, float] = defaultdict(float)

    def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Look no more; raises what looking failed with, if it did."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _look(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen())
            both.create_task(self._go_round())
            both.create_task(self._ask_postgres())

    async def _listen(self) -> None:
        """Notice when the loop comes back late."""
        while True:
            before = time.time()
            await asyncio.sleep(_BEAT_SECONDS)
            if (late := time.time() - before - _BEAT_SECONDS) > TOO_LATE_SECONDS:
                self._tell("machine: networks stood still", EVERYBODY, time.time() - late)

    async def _go_round(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.to_thread(self._look_around)

    async def _ask_postgres(self) -> None:
        """Notice when Postgres has no time for anything: it may be catching up after a fault."""
        connection: asyncpg.Connection | None = None
        try:
            while True:
                began = time.time()
                try:
                    if connection is None:
                        connection = await asyncpg.connect(
                            self._stage.postgres.url, timeout=_ANSWER_SECONDS, server_settings=_NAMED
                        )
                    await connection.execute("select 1", timeout=_ANSWER_SECONDS)
                except AWAY:  # a fault, which is noted as such
                    if connection is not None:
                        connection.terminate()
                    connection = None
                else:
                    if time.time() - began > TOO_LATE_SECONDS:
                        self._tell("machine: Postgres answered late", EVERYBODY, began)
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            if connection is not None:
                connection.terminate()

    def _look_around(self) -> None:
        """Look at everything once, beside the loop."""
        now = time.time()
        if (began := self._stolen.read(now, _stolen_seconds(), 0.0)) is not None:
            self._tell("machine: CPU stolen", EVERYBODY, began)
        for pid, seat in self._watched(now).items():
            if (sums := waits_and_turns(pid)) is None:
                continue
            if (began := self._meters.setdefault(pid, Meter()).read(now, *sums)) is not None:
                self._tell("machine: no CPU", seat, began)
        if now - self._wrote_at >= _DISK_SECONDS:
            self._wrote_at = now
            _write(self._stage.directory / "witness")
            if time.time() - now > TOO_LATE_SECONDS:
                self._tell("machine: the disk stood still", EVERYBODY, now)

    def _tell(self, what: str, whom: str, began: float) -> None:
        self.seconds[what] += time.time() - began
        self._stage.note_hit(what, whom, began)

    def _watched(self, now: float) -> dict[int, str]:
        """Return whose process ids are looked at: those of workers and of their heartbeat processes."""
        if now - self._looked_for_pids_at >= _CHILDREN_SECONDS:
            self._looked_for_pids_at = now
            seats = [seat for seat in self._stage.seats if seat.role in _WATCHED]
            pids = [(seat, pid) for seat in seats for pid in seat.family()]
            self._pids = {pid: seat.name for seat, pid in pids}
            self._meters = {pid: meter for pid, meter in self._meters.items() if pid in self._pids}
        return self._pids


def waits_and_turns(pid: int) -> tuple[float, int] | None:
    """Return for how many seconds a process's first thread waited for a CPU so far, and how often it had one.

    None where it is gone.
    """
    with suppress(OSError):
        _, waited, turns = Path(f"/proc/{pid}/schedstat").read_text().split()
        return int(waited) / 1e9, int(turns)
    return None


def _stolen_seconds() -> float:
    """Return what the host took of all CPUs so far."""
    with Path("/proc/stat").open() as stat:
        return int(stat.readline().split()[_STEAL]) / os.sysconf("SC_CLK_TCK")


def _write(path: Path) -> None:
    """Write a little, and see it to the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, str(time.time()).encode(), 0)
        os.fdatasync(file)
    finally:
        os.close(file)
