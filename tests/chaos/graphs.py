"""What must be true of tasks that need others, told from their needs, their counts and the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

import grns
from grns.errors import ConflictError
from grns.model.task import STATUS_AFTER, TERMINAL

if TYPE_CHECKING:
    from tests.chaos.checker import Event

_NOWHERE = "nats://127.0.0.1:1"
# Why the follower ends a task.
BY_NEEDS = ("dependency", "skipped", "workflow_cancelled")
_NEEDS = "select task_id, needs, outcome, ended_as from grns.needs where task_id <> needs"
_WAITS = "select task_id, open, met, broken, required from grns.waits"
_WORKFLOWS = "select id, status from grns.workflows"
_FAILURES = {"failed", "dead", "cancelled"}
_QUEUED = "evt.task.queued"
# Why a task is queued that needs others: one under limits waits for room after that.
_AFTER_NEEDS = ("needs_met", "admitted")


async def let_all_end(url: str) -> None:
    """Resume workflows that are paused, and seal those that are open."""
    async with grns.connect(database_url=url, nats_url=_NOWHERE) as client:
        after: str | None = None
        while True:
            page = await client.workflows("running", limit=500, after=after)
            for one in page.rows:
                if one.paused_at is not None:
                    with suppress(ConflictError):
                        await client.resume_workflow(one.id)
                if one.sealed_at is None:
                    await client.seal_workflow(one.id)
            after = page.next_cursor
            if after is None:
                return


@dataclass(slots=True)
class Need:
    """What a task needs another one for, and how that one has ended, as the follower says."""

    id: str
    outcome: str
    ended_as: str | None

    def is_met_by(self, end: str | None) -> bool:
        """Say whether such an end meets it."""
        ends = {"success": {"succeeded"}, "failure": _FAILURES}
        return end is not None and (self.outcome == "end" or end in ends[self.outcome])

    @property
    def is_broken(self) -> bool:
        """Say whether it has failed the task, which would not have been to be skipped."""
        return self.outcome == "success" and self.ended_as in _FAILURES


@dataclass(slots=True)
class Wait:
    """The counts that the follower keeps."""

    open: int
    met: int
    broken: int
    required: int


@dataclass(slots=True)
class Graphs:
    """The tables of needs, held against the tasks and their log."""

    needs: dict[str, list[Need]] = field(default_factory=lambda: defaultdict(list))
    waits: dict[str, Wait] = field(default_factory=dict)
    workflows: dict[str, str] = field(default_factory=dict)

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the tables."""
        for row in await connection.fetch(_NEEDS):
            self.needs[row["task_id"]].append(Need(row["needs"], row["outcome"], row["ended_as"]))
        for row in await connection.fetch(_WAITS):
            self.waits[row["task_id"]] = Wait(row["open"], row["met"], row["broken"], row["required"])
        for row in await connection.fetch(_WORKFLOWS):
            self.workflows[row["id"]] = row["status"]

    def judge(
        self,
        tasks: Mapping[str, Mapping[str, Any]],
        log: Mapping[str, Sequence[Event]],
        handed_in: Mapping[str, tuple[Mapping[str, str], int]],
    ) -> Iterator[str]:
        """Return what is wrong."""
        for task_id, (wanted, required) in handed_in.items():
            needs = self.needs.get(task_id, ())
            joined = {need.id for need in needs if tasks.get(need.id, {}).get("parent") == task_id}
            there = {need.id: need.outcome for need in needs if need.id not in joined}
            if there != wanted or (wanted and not joined and self.waits[task_id].required != required):
                yield f"{task_id} needs {there}, and was to need {required} of {wanted}"
        for owner, wait in self.waits.items():
            needs = self.needs[owner]
            yield from self._judge_counts(owner, wait, needs, tasks, log)
            if owner in self.workflows:
                if wait.required != len(needs):
                    yield f"{owner} has counted {wait.required} tasks, and has {len(needs)}"
                said = ("failed", "cancelled") if wait.broken else ("succeeded",)
                if self.workflows[owner] not in said:
                    yield f"{owner} is {self.workflows[owner]}, and its tasks say {said[0]}"
            else:
                joined = {need.id for need in needs if tasks[need.id].get("parent") == owner}
                yield from _judge_task(owner, wait, needs, tasks[owner], log, joined)

    def _judge_counts(
        self,
        owner: str,
        wait: Wait,
        needs: Sequence[Need],
        tasks: Mapping[str, Mapping[str, Any]],
        log: Mapping[str, Sequence[Event]],
    ) -> Iterator[str]:
        """Each need is ended as its task is, and counted once."""
        for need in needs:
            end = self.workflows.get(need.id) or _end_of(tasks[need.id], log[need.id])
            if need.ended_as != end:
                yield f"{owner} has {need.id} as {need.ended_as}, which is {end}"
        ends = [need for need in needs if need.ended_as is not None]
        met = sum(need.is_met_by(need.ended_as) for need in ends)
        counts = Wait(len(needs) - len(ends), met, sum(need.is_broken for need in ends), wait.required)
        if counts != wait:
            yield f"{owner} has counted {wait}, and its needs are {counts}"


def _judge_task(
    task_id: str,
    wait: Wait,
    needs: Sequence[Need],
    task: Mapping[str, Any],
    log: Mapping[str, Sequence[Event]],
    joined: Set[str],
) -> Iterator[str]:
    """It was queued when enough of its needs were met, and ended by them only if they are not.

    What its handler waited for, it needed from then on.
    """
    began = min((event.seq for event in log[task_id] if (event.step or "").startswith("join")), default=0)
    queued = [event for event in log[task_id] if event.kind == _QUEUED and event.reason in _AFTER_NEEDS]
    for event in queued:
        is_before = event.seq < began
        required = wait.required - len(joined) if is_before else wait.required
        those = [need for need in needs if not (is_before and need.id in joined)]
        met = sum(any(need.is_met_by(end) for end in _ends_before(log[need.id], event.seq)) for need in those)
        if met < required:
            yield f"{task_id} was queued at {event.seq}, with {met} of {required} needs met"
    last = log[task_id][-1] if log[task_id] else None
    is_ended_by_needs = last is not None and task["status"] == "cancelled" and last.reason in BY_NEEDS
    if is_ended_by_needs and wait.met >= wait.required and last and last.reason != "workflow_cancelled":
        yield f"{task_id} was ended for its needs, and they are met"
    if not is_ended_by_needs and not queued and task["status"] in TERMINAL - {"cancelled"}:
        yield f"{task_id} is {task['status']}, and was never queued for its needs"


def _end_of(task: Mapping[str, Any], events: Sequence[Event]) -> str | None:
    """Return how a task has ended, as a need of it says so."""
    status: str = task["status"]
    if status == "cancelled" and events and events[-1].reason == "skipped":
        return "skipped"
    return status if status in TERMINAL else None


def _ends_before(events: Sequence[Event], seq: int) -> Iterator[str]:
    for event in events:
        status = STATUS_AFTER.get(event.kind)
        if event.seq < seq and status in TERMINAL:
            yield "skipped" if status == "cancelled" and event.reason == "skipped" else status
