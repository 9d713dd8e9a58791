"""What Postgres says, asked directly: the demo does not take grns' word for anything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from grns.model.task import TERMINAL, Status

_COUNTS = "select status, count(*) from grns.tasks group by status"
_AGENTS = "select agent_id, pid from grns.agents where stopped_at is null"
_HELD = (
    "select owner_agent_id, array_agg(id) from grns.tasks where status = 'running' group by owner_agent_id"
)
_CONNECTIONS = "select count(*) from pg_stat_activity where application_name = $1"
_ROWS = (
    "select id, task_type, status, attempt, version, payload ->> 'path' as path, result::text as result"
    " from grns.tasks order by id"
)
_ENTRIES = (
    "select task_id, version, kind, created_at from grns.events where task_id is not null"
    " order by task_id, version"
)
_DEAD_LETTERS = "select reason, body from grns.dead_letters order by created_at"


@dataclass(frozen=True, slots=True)
class Row:
    """One task, as its row has it. `path` is the file that it was about, where it was about one."""

    id: str
    task_type: str
    status: Status
    attempt: int
    version: int
    path: str | None
    result: Any


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One row of the log about a task."""

    task_id: str
    version: int
    kind: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One message that belonged to no task."""

    reason: str
    body: bytes


class Truth:
    """One connection, one question at a time."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def counts(self) -> dict[Status, int]:
        """Return how many tasks are where."""
        return {Status(status): count for status, count in await self._connection.fetch(_COUNTS)}

    async def agents(self) -> dict[str, int]:
        """Return the process ids of the workers, by agent id."""
        return {agent_id: pid for agent_id, pid in await self._connection.fetch(_AGENTS)}

    async def held(self) -> dict[str, frozenset[str]]:
        """Return the running tasks, by agent id."""
        return {agent_id: frozenset(ids) for agent_id, ids in await self._connection.fetch(_HELD)}

    async def connections(self, pid: int) -> int:
        """Return how many connections Postgres still serves for a worker, dead or alive."""
        return int(await self._connection.fetchval(_CONNECTIONS, f"grns worker {pid}"))

    async def rows(self) -> list[Row]:
        """Return all tasks."""
        return [_row(record) for record in await self._connection.fetch(_ROWS)]

    async def entries(self) -> list[DemoEvent]:
        """Return the log of all tasks, in the order of their versions."""
        return [DemoEvent(*record) for record in await self._connection.fetch(_ENTRIES)]

    async def dead_letters(self) -> list[DeadLetterRow]:
        """Return the messages that could not be accepted."""
        return [DeadLetterRow(*record) for record in await self._connection.fetch(_DEAD_LETTERS)]


@asynccontextmanager
async def ask(url: str) -> AsyncIterator[Truth]:
    """Open a connection for questions."""
    connection = await asyncpg.connect(url, timeout=10, command_timeout=10)
    try:
        yield Truth(connection)
    finally:
        connection.terminate()


def ended(counts: dict[Status, int]) -> int:
    """Return how many tasks have ended."""
    return sum(count for status, count in counts.items() if status in TERMINAL)


def _row(record: asyncpg.Record) -> Row:
    values = dict(record)
    values["status"] = Status(values["status"])
    values["result"] = None if values["result"] is None else json.loads(values["result"])
    return Row(**values)
