"""`make recovery [SAMPLES=30]`: how long each fault is felt, one kind at a time, with a lease of 5 s."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from tests.chaos import journal
from tests.chaos.show import progress_on
from tests.chaos.stage import Seat, Stage, send_all
from tests.harness import eventually

LEASE_SECONDS = 5.0
_HEARTBEAT_SECONDS = LEASE_SECONDS / 3
_AT_ONCE = 12
_SETTLED_SECONDS = 40.0
_SUBMIT = "select grns.submit_task('hold', $1, 'worker')"
# For each task: when it was claimed again after an event of some kind.
_AGAIN = """
    select extract(epoch from c.created_at - e.created_at)::float8 as seconds
    from grns.events e
    cross join lateral (
        select n.created_at from grns.events n
        where n.task_id = e.task_id and n.kind = 'evt.task.claimed' and n.version > e.version
        order by n.version limit 1
    ) c
    where e.task_id = any($1) and e.kind = $2
"""
_CLAIMED_AFTER = """
    select extract(epoch from min(e.created_at))::float8 as at from grns.events e
    where e.task_id = $1 and e.kind = 'evt.task.claimed' and e.created_at > to_timestamp($2)
"""


class Field:
    """A stage with a connection of our own, and the steps that trials are made of."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Connect, as soon as Postgres is there."""
        while True:
            try:
                connection = await asyncpg.connect(self.stage.postgres.url, timeout=2)
            except (OSError, asyncpg.PostgresError, TimeoutError):
                await asyncio.sleep(0.01)
            else:
                break
        try:
            yield connection
        finally:
            connection.terminate()

    async def submit(self, count: int, seconds: float) -> list[str]:
        """Hand in tasks whose first attempt takes so long; later ones end at once."""
        payload = json.dumps({"seconds": seconds})
        async with self.connection() as connection:
            return [await connection.fetchval(_SUBMIT, payload) for _ in range(count)]

    async def owners(self, ids: list[str]) -> dict[str, str]:
        """Wait until all run; returns the seat that runs each."""

        async def are_running() -> dict[str, str]:
            async with self.connection() as connection:
                rows = await connection.fetch(
                    "select t.id, a.pid from grns.tasks t join grns.agents a on a.agent_id = t.owner_agent_id"
                    " where t.id = any($1)",
                    ids,
                )
            return {row["id"]: self._seat_of(row["pid"]) for row in rows} if len(rows) == len(ids) else {}

        return await eventually(are_running, within_seconds=_SETTLED_SECONDS)

    def _seat_of(self, pid: int) -> str:
        return next((s.name for s in self.stage.seats if s.process and s.process.pid == pid), "?")

    def seat(self, name: str) -> Seat:
        """Return a seat by its name."""
        return next(seat for seat in self.stage.seats if seat.name == name)

    async def ended(self, ids: list[str]) -> None:
        """Wait until all have ended."""

        async def have_ended() -> bool:
            async with self.connection() as connection:
                left = await connection.fetchval(
                    "select count(*) from grns.tasks where id = any($1) and finished_at is null", ids
                )
            return bool(left == 0)

        await eventually(have_ended, within_seconds=_SETTLED_SECONDS)

    async def claimed_after(self, task_id: str, moment: float) -> float:
        """Wait until a task is claimed after a moment; returns the seconds between."""
        found: list[Any] = []

        async def is_claimed() -> bool:
            async with self.connection() as connection:
                found[:] = [await connection.fetchval(_CLAIMED_AFTER, task_id, moment)]
            return found[0] is not None

        await eventually(is_claimed, within_seconds=_SETTLED_SECONDS, every=0.1)
        return float(found[0]) - moment


async def kill_worker(field: Field) -> list[float]:
    """SIGKILL of a worker: from the kill until its tasks are claimed again."""
    ids = await field.submit(_AT_ONCE, 60.0)
    owners = await field.owners(ids)
    victim = max(set(owners.values()), key=list(owners.values()).count)
    await asyncio.sleep(random.uniform(0, LEASE_SECONDS))  # anywhere between two renewals
    killed_at = time.time()
    field.seat(victim).send(signal.SIGKILL)
    seconds = [await field.claimed_after(one, killed_at) for one, owner in owners.items() if owner == victim]
    await _give_up(field, ids)
    return seconds


async def stop_worker(field: Field) -> list[float]:
    """SIGTERM of a worker: from the release of its tasks until they are claimed again."""
    ids = await field.submit(_AT_ONCE, 60.0)
    owners = await field.owners(ids)
    victim = max(set(owners.values()), key=list(owners.values()).count)
    released = [one for one, owner in owners.items() if owner == victim]
    stopped_at = time.time()
    field.seat(victim).send(signal.SIGTERM)
    for one in released:
        await field.claimed_after(one, stopped_at)
    async with field.connection() as connection:
        rows = await connection.fetch(_AGAIN, released, "evt.task.released")
    await _give_up(field, ids)
    return [row["seconds"] for row in rows]


async def _give_up(field: Field, ids: list[str]) -> None:
    """End what still holds on, by asking for it."""
    async with field.connection() as connection:
        await connection.execute(
            "update grns.tasks set cancel_requested_at = now(), cancel_reason = 'the trial is over'"
            " where id = any($1) and status = 'running'",
            ids,
        )
    await field.ended(ids)


async def restart_postgres(field: Field) -> list[float]:
    """Postgres restarted: from when it is ready until a worker's first commit."""
    ids = await field.submit(_AT_ONCE, random.uniform(0.5, 2.0))
    await field.owners(ids)
    await asyncio.to_thread(field.stage.postgres.stop)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(field.stage.postgres.start)
    async with field.connection() as connection:
        ready_at = time.time()
        task_id = await connection.fetchval(_SUBMIT, json.dumps({"seconds": 0}))
    seconds = await field.claimed_after(task_id, ready_at)
    await field.ended([*ids, task_id])
    return [seconds]


async def lose_broker(field: Field) -> list[float]:
    """NATS gone: from the submit until a worker has found the task in Postgres."""
    (broker,) = field.stage.brokers
    await asyncio.to_thread(broker.kill)
    seconds = []
    for _ in range(5):
        await asyncio.sleep(random.uniform(0.0, 1.0))
        submitted_at = time.time()
        (task_id,) = await field.submit(1, 0.0)
        seconds.append(await field.claimed_after(task_id, submitted_at))
    await asyncio.to_thread(broker.start)
    await asyncio.sleep(1.0)
    return seconds


async def kill_relay(field: Field) -> list[float]:
    """The leading relay killed: until another one leads."""
    async with field.connection() as connection:
        sql = "select epoch, owner from grns.relay_cursor"
        epoch, owner = await connection.fetchrow(sql) or (0, "")
        leader = next(s for s in field.stage.of("relay") if s.process and f"-{s.process.pid}-" in owner)
        killed_at = time.monotonic()
        leader.send(signal.SIGKILL)

        async def leads_another() -> bool:
            row = await connection.fetchrow(sql)
            return row is not None and bool(row["epoch"] > epoch)

        await eventually(leads_another, within_seconds=_SETTLED_SECONDS, every=0.01)
        seconds = time.monotonic() - killed_at
    await asyncio.sleep(2.0)
    return [seconds]


async def kill_reaper(field: Field) -> list[float]:
    """A reaper killed: the longest time in which no reaper ticks."""
    async with field.connection() as connection:
        sql = "select extract(epoch from clock_timestamp() - last_tick_at)::float8 from grns.reaper_state"
        random.choice(field.stage.of("reaper")).send(signal.SIGKILL)
        gaps = [0.0]
        deadline = time.monotonic() + 3.0
        while time.monotonic() < deadline:
            gaps.append(await connection.fetchval(sql))
            await asyncio.sleep(0.02)
    return [max(gaps)]


async def wake_worker(field: Field) -> list[float]:
    """A frozen worker that wakes after it was given up: until it has cancelled its handlers."""
    ids = await field.submit(_AT_ONCE, 60.0)
    owners = await field.owners(ids)
    victim = field.seat(max(set(owners.values()), key=list(owners.values()).count))
    lost = [one for one, owner in owners.items() if owner == victim.name]
    frozen_at = time.time()
    children = victim.children()
    victim.send(signal.SIGSTOP)
    send_all(children, signal.SIGSTOP)
    for one in lost:
        await field.claimed_after(one, frozen_at)
    woken_at = time.time()
    send_all(children, signal.SIGCONT)
    victim.send(signal.SIGCONT)
    cancelled: dict[str, float] = {}

    async def are_cancelled() -> bool:
        for note in journal.read(field.stage.directory, "effects-*.jsonl"):
            if note["what"] == "cancelled" and note["task"] in lost and note["attempt"] == 1:
                cancelled[note["task"]] = note["at"] - woken_at
        return len(cancelled) == len(lost)

    await eventually(are_cancelled, within_seconds=_SETTLED_SECONDS, every=0.2)
    await _give_up(field, ids)
    return list(cancelled.values())


@dataclass(frozen=True)
class Trial:
    """One kind of fault: what is measured, how, and what it may take at most, in seconds."""

    name: str
    measure: Callable[[Field], Awaitable[list[float]]]
    bound: float


TRIALS = (
    Trial("worker SIGKILL -> claimed again", kill_worker, 6.5),
    Trial("worker SIGTERM: released -> claimed again", stop_worker, 1.0),
    Trial("Postgres ready again -> first commit", restart_postgres, 2.0),
    Trial("NATS gone: submitted -> claimed", lose_broker, 2.5),
    Trial("relay killed -> another leads", kill_relay, 3.0),
    Trial("reaper killed: longest time without one", kill_reaper, 3.0),
    Trial("frozen worker wakes -> handlers cancelled", wake_worker, _HEARTBEAT_SECONDS + 1.0),
)


async def measure(samples: int, only: str, directory: Path, console: Console) -> dict[str, list[float]]:
    """Try each fault until there are enough samples; returns the seconds by trial."""
    stage = Stage(directory, rate=0.0, lease_seconds=LEASE_SECONDS, has_wrong_clocks=False)
    found: dict[str, list[float]] = {}
    try:
        await stage.start()
        await stage.ready()
        field = Field(stage)
        with progress_on(console) as progress:
            for trial in TRIALS:
                if only not in trial.name:
                    continue
                seconds = found.setdefault(trial.name, [])
                bar = progress.add_task(trial.name, total=samples)
                while len(seconds) < samples:
                    seconds += await trial.measure(field)
                    progress.update(bar, completed=len(seconds))
    finally:
        await stage.end()
    return found


def show(console: Console, found: dict[str, list[float]]) -> bool:
    """Print what was measured; True where all is within its bound."""
    table = Table("fault", "samples", "p50", "p99", "longest", "bound", title=f"lease {LEASE_SECONDS:g} s")
    are_good = True
    for trial in TRIALS:
        if (seconds := found.get(trial.name)) is None:
            continue
        p99 = quantile(seconds, 0.99)
        is_good = p99 <= trial.bound
        are_good = are_good and is_good
        cells = (statistics.median(seconds), p99, max(seconds), trial.bound)
        table.add_row(
            trial.name,
            str(len(seconds)),
            *(f"{cell:.2f} s" for cell in cells),
            style="" if is_good else "red",
        )
    console.print(table)
    return are_good


def quantile(values: list[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    """Read the options, run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make recovery")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--only", default="", help="those whose names have this in them")
    parser.add_argument("--result", type=Path, help="a file to write the result to")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    directory = Path(tempfile.mkdtemp(prefix="grns-recovery-"))
    directory.chmod(0o755)
    try:
        found = asyncio.run(measure(options.samples, options.only, directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.result is not None:
        options.result.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if show(console, found) else 1


if __name__ == "__main__":
    sys.exit(main())
