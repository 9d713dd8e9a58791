"""Submitting: tasks with their events and commands, in one statement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from grns.errors import BadInput, Conflict
from grns.store.batch import Batch
from grns.store.database import Database, Row
from grns.store.statement import statement
from grns.strict_json import Limits, dumps
from grns.submission import Submission
from grns.task import new_id


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class Prepared:
    """A submission that is checked, has its id, and its payload as text."""

    id: str
    submission: Submission
    payload: str
    trace_id: str


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class Submitted:
    """What became of a submission: the task's id, and whether this submission created it."""

    id: str
    is_new: bool
    trace_id: str


def prepare(submission: Submission, limits: Limits) -> Prepared:
    """Give a submission its id and its payload's text; `BadInput` where the payload cannot be kept."""
    task_id = new_id(time.time_ns() // 1_000_000, getrandbits(80).to_bytes(10, "big"))
    trace_id = submission.trace_id or f"{getrandbits(128):032x}"
    return Prepared(task_id, submission, dumps(submission.payload, limits), trace_id)


def columns(batch: Sequence[Prepared]) -> tuple[list[Any], ...]:
    """Return the arrays that `submit_tasks` takes."""
    said = [prepared.submission for prepared in batch]
    return (
        [prepared.id for prepared in batch],
        [one.workspace for one in said],
        [one.task_type for one in said],
        [one.agent_type for one in said],
        [one.priority for one in said],
        [prepared.payload for prepared in batch],
        [one.delay_seconds for one in said],
        [one.max_attempts for one in said],
        [one.idempotency_key for one in said],
        [prepared.trace_id for prepared in batch],
        [one.causation_id for one in said],
    )


def answers(batch: Sequence[Prepared], rows: Sequence[Row]) -> list[Submitted | Conflict]:
    """Match the statement's rows to the batch; a key that belongs to another task is a `Conflict`."""
    found = {row["ordinal"]: row for row in rows}
    return [_answer(prepared, found.get(place)) for place, prepared in enumerate(batch, start=1)]


def _answer(prepared: Prepared, row: Row | None) -> Submitted | Conflict:
    key = prepared.submission.idempotency_key
    if row is None:
        return Conflict(
            f"idempotency_key {key!r} is taken by a task that this transaction cannot see; try again"
        )
    if not row["same"]:
        return Conflict(f"idempotency_key {key!r} belongs to task {row['task_id']}, which is another one")
    return Submitted(row["task_id"], row["created"], prepared.trace_id)


class Submissions:
    """Creates tasks; single ones that arrive together share a statement."""

    def __init__(self, database: Database, *, batch_limit: int) -> None:
        self._database = database
        self._batch: Batch[Prepared, Submitted | Conflict] = Batch(self.submit_many, limit=batch_limit)

    async def submit(self, prepared: Prepared) -> Submitted:
        """Create one task, or return the one that has its key."""
        answer = await self._batch.ask(prepared)
        if isinstance(answer, Conflict):
            raise answer
        return answer

    async def submit_many(self, batch: Sequence[Prepared]) -> list[Submitted | Conflict]:
        """Create many tasks in one statement and one transaction: all that do not conflict."""
        return answers(batch, await self._database.run("submit_tasks", *columns(batch)))


async def submit_in(connection: Any, batch: Sequence[Prepared]) -> list[Submitted | Conflict]:
    """Create tasks inside the caller's transaction.

    `connection` is an asyncpg connection, or an AsyncSession or AsyncConnection of
    SQLAlchemy on asyncpg. Nothing exists unless the caller commits.
    """
    arguments = columns(batch)
    if hasattr(connection, "fetch"):
        return answers(batch, await connection.fetch(statement("submit_tasks"), *arguments))
    if not hasattr(connection, "exec_driver_sql"):
        if not hasattr(connection, "connection"):
            raise BadInput(
                "bad_connection",
                "connection must be asyncpg's, or an AsyncSession or AsyncConnection, "
                f"not {type(connection).__name__}",
            )
        connection = await connection.connection()  # a session lends its own
    result = await connection.exec_driver_sql(statement("submit_tasks"), arguments)
    return answers(batch, result.mappings().all())
