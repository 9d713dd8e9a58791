"""Limits in the storm: a key for each tenant, one at a time, and a rate for all (W4, W5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

import grns
from grns.model.task import STATUS_AFTER, TaskStatus

if TYPE_CHECKING:
    from tests.chaos.checker import Event

LIMITED = "limited"
TENANTS = 7
_ALL = "storm"
_NOWHERE = "nats://127.0.0.1:1"
_POOLS = ("worker", "scout")
_ONE_OF_TENANT, _MOST, _PER_SECOND, _BURST = 1, 4, 30, 10
# A claim's time is that of the beginning of its transaction.
_SLACK = 1
_HOLDS = {TaskStatus.QUEUED, TaskStatus.RUNNING}
_ROOM_KEPT = {"evt.task.lease_expired", "evt.task.released"}
_QUEUED, _CLAIMED = "evt.task.queued", "evt.task.claimed"


async def put_limits(url: str) -> None:
    """Put them, straight into the database; with them a budget, at which the scheduler looks."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        await client.budgets.put("storm", max_cost=1_000_000, action="ask")
        for pool in _POOLS:
            await client.limits.put(
                "storm-tenant", pool=pool, tasks=[LIMITED], key="tenant", max=_ONE_OF_TENANT
            )
            await client.limits.put(
                _ALL, pool=pool, tasks=[LIMITED], max=_MOST, rate=f"{_PER_SECOND}/s", burst=_BURST
            )


async def pause_limits(url: str) -> None:
    """Let tasks wait for room."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        await client.limits.pause(_ALL, reason="a failpoint wants waiting tasks")


async def resume_limits(url: str) -> None:
    """Let them be admitted again."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        await client.limits.resume(_ALL)


def tenant_of(number: int) -> str:
    """Return the tenant of a task."""
    return f"t{number % TENANTS}"


@dataclass(slots=True)
class Limited:
    """Tasks under limits, held against the log."""

    keys: dict[str, list[str]] = field(default_factory=dict)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read which tasks fall under which keys."""
        for row in await connection.fetch("select id, limits from grns.tasks where limits is not null"):
            self.keys[row["id"]] = row["limits"]

    def judge(
        self, tasks: Mapping[str, Mapping[str, Any]], log: Mapping[str, Sequence[Event]]
    ) -> Iterator[str]:
        """Return what is wrong: too many of a key at once, or in a time, or queued without the admitter."""
        yield from self._judge_keys(tasks)
        held: Counter[str] = Counter()
        holds: dict[str, bool] = defaultdict(bool)
        admitted: set[str] = set()
        begun: list[float] = []
        rows = ((event.seq, task_id, event) for task_id in self.keys for event in log[task_id])
        for seq, task_id, event in sorted(rows, key=lambda one: one[0]):
            is_held = STATUS_AFTER[event.kind] in _HOLDS
            if is_held and not holds[task_id]:
                if (event.kind, event.reason) != (_QUEUED, "admitted"):
                    yield f"{task_id} was queued at {seq} by {event.kind} ({event.reason}), not admitted"
                admitted.add(task_id)
            if event.kind in _ROOM_KEPT:
                admitted.discard(task_id)
            if event.kind == _CLAIMED and task_id in admitted:
                begun.append(event.at)
            for key in self.keys[task_id]:
                held[key] += is_held - holds[task_id]
                most = _MOST if key == _ALL else _ONE_OF_TENANT
                if held[key] > most and is_held and not holds[task_id]:
                    yield f"{held[key]} of {key} were queued or running at {seq}, with {task_id}"
            holds[task_id] = is_held
        yield from _judge_rate(sorted(begun))

    def _judge_keys(self, tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        for task_id, row in tasks.items():
            if row["task_type"] == LIMITED:
                wanted = [_ALL, f"storm-tenant:{tenant_of(int(row['number']))}"]
                if self.keys.get(task_id) != wanted:
                    yield f"{task_id} falls under {self.keys.get(task_id)}, and was to fall under {wanted}"


def _judge_rate(begun: Sequence[float]) -> Iterator[str]:
    """In any time, at most the burst began and what the rate allows in it."""
    least = float("inf")
    for number, at in enumerate(begun):
        least = min(least, number - _PER_SECOND * at)
        over = number + 1 - _PER_SECOND * at - least - _BURST
        if over > _SLACK:
            yield f"{over:.1f} tasks more than the rate allows had begun at {at}"
