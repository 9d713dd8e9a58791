"""Schedules in the storm: put once, due each second or so, and held against what was decided (W8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg

import grns
from grns.schedules.ticks import CatchUp, Overlap

KEY = "schedule/"
_NOWHERE = "nats://127.0.0.1:1"
# By name: how often, in seconds, and what is done while the task before runs, and with what was missed.
_WANTED: dict[str, tuple[float, Overlap, CatchUp]] = {
    "storm-skip": (1.0, "skip", "latest"),
    "storm-queue": (2.0, "queue_one", "all"),
    "storm-allow": (3.0, "allow", "all"),
    "storm-none": (2.0, "allow", "none"),
}
_SCHEDULES = "select name, anchor_at, every_seconds, next_at from grns.schedules"
_RUNS = "select name, due_at, outcome, task_id, missed from grns.schedule_runs"


async def put_all(url: str) -> None:
    """Put them, straight into the database; what is there already stays as it is."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        for number, (name, (every, overlap, catch_up)) in enumerate(_WANTED.items()):
            payload = {"number": -1 - number, "seconds": 0.5}
            await client.schedules.put(
                name, "steady", payload, pool="worker", every=every, overlap=overlap, catch_up=catch_up
            )


async def pause_all(url: str) -> None:
    """Pause them, so that what they submit has an end."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        for name in _WANTED:
            await client.schedules.pause(name)


@dataclass(slots=True)
class Ticks:
    """One schedule: when it begins, its interval, what is due next, and what was decided."""

    anchor_at: datetime
    every: timedelta
    next_at: datetime
    runs: dict[datetime, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Schedules:
    """The tables of schedules, held against the tasks."""

    ticks: dict[str, Ticks] = field(default_factory=dict)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the tables."""
        for row in await connection.fetch(_SCHEDULES):
            every = timedelta(seconds=row["every_seconds"])
            self.ticks[row["name"]] = Ticks(row["anchor_at"], every, row["next_at"])
        for row in await connection.fetch(_RUNS):
            self.ticks[row["name"]].runs[row["due_at"]] = dict(row)

    @property
    def decided(self) -> int:
        """How many decisions there are."""
        return sum(len(one.runs) for one in self.ticks.values())

    def judge(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """Return what is wrong: each time that was due is decided once, and has its task or none."""
        submitted: dict[str, set[str]] = defaultdict(set)
        for task_id, row in tasks.items():
            if (row["idempotency_key"] or "").startswith(KEY):
                submitted[row["idempotency_key"].split("/")[1]].add(task_id)
        for name, one in self.ticks.items():
            yield from self._judge_times(name, one)
            said = [run["task_id"] for run in one.runs.values() if run["outcome"] == "submitted"]
            if len(set(said)) < len(said):
                yield f"{name}: two times have the same task"
            if lost := set(said) - submitted[name]:
                yield f"{name}: {sorted(lost)} were submitted, and are not there"
            if more := submitted[name] - set(said):
                yield f"{name}: {sorted(more)} are there, and no decision says so"
        if unknown := submitted.keys() - self.ticks.keys():
            yield f"tasks of schedules that are not there: {sorted(unknown)}"

    def _judge_times(self, name: str, one: Ticks) -> Iterator[str]:
        decided = 0
        for due_at, run in one.runs.items():
            if (due_at - one.anchor_at) % one.every:
                yield f"{name}: {due_at} is none of its times"
            decided += 1 if run["missed"] is None else run["missed"]
        due = (one.next_at - one.anchor_at) // one.every - 1
        if due != decided:
            yield f"{name}: {due} times were due, and {decided} are decided"
