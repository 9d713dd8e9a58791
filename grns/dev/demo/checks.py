"""Checks of the demo: reads Postgres and NATS directly, and compares what happened with what should have."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

import asyncpg
import nats
from nats.aio.msg import Msg
from rich.table import Table

from grns.model.duration import percentiles
from grns.model.task import STATUS_AFTER, TERMINAL, TaskStatus

# task type: the final status of each of its tasks, and the least number of attempts
EXPECTED_ENDS = {
    "digest_file": (TaskStatus.SUCCEEDED, 1),
    "find_files": (TaskStatus.SUCCEEDED, 1),
    "add_up": (TaskStatus.SUCCEEDED, 1),
    "flaky": (TaskStatus.SUCCEEDED, 2),
    "hopeless": (TaskStatus.DEAD, 2),
}
_EXPIRED = "evt.task.lease_expired"
# A lease that expires in the last attempt ends the task as dead.
_AFTER_EXPIRY = (_EXPIRED, "evt.task.dead")


@dataclass(frozen=True, slots=True)
class DemoTask:
    """A task as Postgres has it. `path` is its file, if it has one."""

    id: str
    task_type: str
    status: TaskStatus
    attempt: int
    version: int
    path: str | None
    result: Any


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """A row of the event log about a task."""

    task_id: str
    version: int
    kind: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class DemoState:
    """Tasks, events in the order of task and version, and dead letters as (reason, body), after the run."""

    tasks: list[DemoTask]
    events: list[DemoEvent]
    dead_letters: list[tuple[str, bytes]]


class DemoDatabase:
    """A connection of its own to Postgres."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._fetch = connection.fetch

    async def counts(self) -> dict[TaskStatus, int]:
        """Return the number of tasks per status."""
        rows = await self._fetch("select status, count(*) from grns.tasks group by status")
        return {TaskStatus(status): count for status, count in rows}

    async def workers(self) -> dict[str, int]:
        """Return the process id of each live worker."""
        rows = await self._fetch("select agent_id, pid from grns.workers where stopped_at is null")
        return dict(map(tuple, rows))

    async def running(self) -> dict[str, frozenset[str]]:
        """Return the ids of the running tasks per worker."""
        sql = """select owner_agent_id, array_agg(id) from grns.tasks where status = 'running' group by 1"""
        return {agent_id: frozenset(ids) for agent_id, ids in await self._fetch(sql)}

    async def has_disconnected(self, pid: int) -> bool:
        """Return whether Postgres serves no connection of a worker any more."""
        sql = "select not exists (select from pg_stat_activity where application_name = $1) as is_gone"
        return bool((await self._fetch(sql, f"grns worker {pid}"))[0]["is_gone"])

    async def dead_letters(self) -> list[tuple[str, bytes]]:
        """Return reason and body of each dead letter."""
        sql = "select reason, body from grns.dead_letters order by created_at"
        return [(reason, body) for reason, body in await self._fetch(sql)]

    async def state(self) -> DemoState:
        """Return tasks, events and dead letters."""
        tasks = await self._fetch(
            "select id, task_type, status, attempt, version, payload ->> 'path', result::text"
            " from grns.tasks order by id"
        )
        events = await self._fetch(
            "select task_id, version, kind, created_at from grns.events where task_id is not null"
            " order by task_id, version"
        )
        return DemoState(
            [_task(*row) for row in tasks],
            [DemoEvent(*row) for row in events],
            await self.dead_letters(),
        )


def _task(
    id: str, kind: str, status: str, attempt: int, version: int, path: str | None, result: str | None
) -> DemoTask:
    return DemoTask(id, kind, TaskStatus(status), attempt, version, path, json.loads(result or "null"))


@asynccontextmanager
async def open_database(url: str) -> AsyncIterator[DemoDatabase]:
    """Connect to Postgres."""
    connection = await asyncpg.connect(url, timeout=10, command_timeout=10)
    try:
        yield DemoDatabase(connection)
    finally:
        connection.terminate()


class EventObserver:
    """A subscriber of `evt.>`: the kind of each event by task and version. Copies of a message count once."""

    def __init__(self) -> None:
        self.histories: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.kinds: Counter[str] = Counter()
        self._message_ids: set[str] = set()

    async def observe(self, message: Msg) -> None:
        """Record a message."""
        headers = message.headers or {}
        message_id = headers.get("Nats-Msg-Id", "")
        if message_id in self._message_ids:
            return
        self._message_ids.add(message_id)
        kind = str(json.loads(message.data)["kind"])
        self.kinds[kind] += 1
        if "Grns-Task" in headers:
            self.histories[headers["Grns-Task"]][int(headers["Grns-Version"])] = kind

    async def has_all(self, tasks: Sequence[DemoTask]) -> bool:
        """Return whether the latest event of each task has arrived."""
        return all(max(self.histories.get(task.id, {0: ""})) >= task.version for task in tasks)


@asynccontextmanager
async def observe_events(url: str) -> AsyncIterator[EventObserver]:
    """Subscribe to all events until the end of the block."""
    observer = EventObserver()
    client = await nats.connect(url, name="grns demo observer")
    try:
        await client.subscribe("evt.>", cb=observer.observe, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        yield observer
    finally:
        await client.close()


def ended(counts: Mapping[TaskStatus, int]) -> int:
    """Return the number of ended tasks."""
    return sum(count for status, count in counts.items() if status in TERMINAL)


def differences(
    state: DemoState,
    observer: EventObserver,
    *,
    submitted: Mapping[str, int],
    digests: Mapping[str, Any],
    added_up: Sequence[str],
    invalid: Sequence[bytes],
    held: frozenset[str],
) -> Iterator[str]:
    """Yield one sentence per difference between what happened and what should have.

    Args:
        submitted: number of submitted tasks per type.
        digests: expected result per file.
        added_up: the files whose lines the workflow has added up.
        invalid: bodies that grns must keep as dead letters, each once and byte for byte.
        held: ids of the tasks that the killed worker was running.
    """
    types = Counter(task.task_type for task in state.tasks)
    for task_type, count in submitted.items():
        if types[task_type] != count:
            yield f"{count} tasks {task_type} were submitted, and {types[task_type]} exist"
    for path in digests.keys() - {task.path for task in state.tasks}:
        yield f"{path}: has no task"
    total = {"files": len(added_up), "lines": sum(digests[path]["lines"] for path in added_up)}
    for task in state.tasks:
        if task.task_type == "add_up" and task.result != total:
            yield f"{task.id}: the workflow has added up {task.result}, and should have {total}"
        yield from _task_differences(task, digests, observer.histories.get(task.id, {}))
    kept, sent = Counter(body for _, body in state.dead_letters), Counter(invalid)
    for body in (sent - kept).elements():
        yield f"no dead letter holds {body[:80]!r}"
    for body in (kept - sent).elements():
        yield f"a dead letter holds {body[:80]!r}, which was not sent"
    after_expiry = {event.task_id for event in state.events if event.kind in _AFTER_EXPIRY}
    if not any(event.kind == _EXPIRED for event in state.events):
        yield "no lease expired after the kill"
    for task_id in held - after_expiry:
        yield f"{task_id}: the killed worker ran it, and it was never put back"


def _task_differences(
    task: DemoTask, digests: Mapping[str, Any], history: Mapping[int, str]
) -> Iterator[str]:
    status, attempts = EXPECTED_ENDS[task.task_type]
    if task.status != status or task.attempt < attempts:
        yield f"{task.id} ({task.task_type}): {task.status} after {task.attempt} attempts, not {status}"
    if task.path is not None and task.result != digests.get(task.path):
        yield f"{task.path}: the result is {task.result}, and should be {digests.get(task.path)}"
    if missing := set(range(1, task.version + 1)) - history.keys():
        yield f"{task.id}: its events {sorted(missing)} did not arrive"
    if history and STATUS_AFTER.get(history[max(history)]) != task.status:
        yield f"{task.id}: is {task.status}, and its last event is {history[max(history)]}"


def summary(state: DemoState, observer: EventObserver) -> Table:
    """Return the table of counts and times."""
    events = [event for event in state.events if event.kind.startswith("evt.")]
    kinds = Counter(event.kind for event in events)
    waits, runs, repeated = [], [], 0
    of_tasks = [event for event in events if event.kind in STATUS_AFTER]
    for _, history in groupby(of_tasks, key=lambda event: event.task_id):
        for before, after in pairwise(history):
            seconds = (after.created_at - before.created_at).total_seconds()
            if STATUS_AFTER[before.kind] is TaskStatus.QUEUED and after.kind == "evt.task.claimed":
                waits.append(seconds)
                repeated += before.kind == _EXPIRED
            elif after.kind == "evt.task.completed":
                runs.append(seconds)
    times = [event.created_at for event in events]
    work_seconds = max((max(times) - min(times)).total_seconds(), 1e-9)
    table = Table(show_header=False)
    for status, count in sorted(Counter(task.status.value for task in state.tasks).items()):
        table.add_row(f"tasks {status}", str(count))
    table.add_section()
    table.add_row("executions", str(kinds["evt.task.claimed"]))
    table.add_row("retries", str(kinds["evt.task.retry_scheduled"]))
    table.add_row("re-executions after the kill", str(repeated))
    table.add_row("throughput", f"{len(state.tasks) / work_seconds:.0f} tasks/s over {work_seconds:.1f} s")
    for title, durations in (("queue wait", percentiles(waits)), ("run", percentiles(runs))):
        table.add_row(f"{title}, p50 / p99", f"{durations.p50 * 1000:.0f} ms / {durations.p99 * 1000:.0f} ms")
    table.add_section()
    for kind in sorted(kinds | observer.kinds):
        table.add_row(kind, f"{kinds[kind]} logged, {observer.kinds[kind]} received")
    table.add_section()
    for reason, body in state.dead_letters:
        table.add_row(f"dead letter: {reason}", f"{len(body)} bytes kept")
    return table
