"""Operations as people see them: asked for, looked at, paused, ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grns.errors import ConflictError, NotFoundError
from grns.model import filter as filters
from grns.model.json import loads_stored
from grns.operations.model import Action, OperationRequest, State
from grns.postgres.database import Database, Row, Session
from grns.postgres.paging import Page, page_of
from grns.tasks.search import TaskSummary, count, list_tasks
from grns.tasks.secrets import sealed_patch

_SAMPLED = 300
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as Postgres has it. Counts are of tasks; `skipped_by` says of how many why.

    `succeeded`, `failed_again` and `ended_otherwise` are what became of those it has redriven.
    """

    id: int
    workspace: str
    action: Action
    filter: str
    canary: bool
    rate_per_minute: float | None
    patch: dict[str, Any] | None
    agent_type: str | None
    reason: str | None
    created_by: str
    created_at: datetime
    matched: int
    is_exact: bool
    state: State
    state_reason: str | None
    canary_task_id: str | None
    moved: int
    skipped: int
    skipped_by: dict[str, int]
    succeeded: int
    failed_again: int
    ended_otherwise: int
    moved_at: datetime | None
    ended_at: datetime | None

    @property
    def outstanding(self) -> int:
        """How many of those that it has redriven have not ended since."""
        if self.action is not Action.REDRIVE:
            return 0
        return self.moved - self.succeeded - self.failed_again - self.ended_otherwise


@dataclass(frozen=True, slots=True)
class TypeCount:
    """How many of the tasks that were looked at are of a type, and one of them."""

    task_type: str
    tasks: int
    sample_task_id: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would find now: how many tasks, at least so many where it is not exact.

    `by_type` is told of the latest 300, the most frequent type first.
    """

    count: int
    is_exact: bool
    by_type: list[TypeCount]


async def preview(database: Database | Session, wanted: OperationRequest, *, workspace: str) -> Preview:
    """Say what an operation would find, and change nothing."""
    found = filters.parse(wanted.filter)
    tasks = await count(database, workspace=workspace, wanted=found)
    page = await list_tasks(database, workspace=workspace, wanted=found, limit=_SAMPLED, after=None)
    return Preview(tasks.number, tasks.is_exact, _by_type(page.rows))


def _by_type(tasks: Sequence[TaskSummary]) -> list[TypeCount]:
    ids: dict[str, list[str]] = {}
    for task in tasks:
        ids.setdefault(task.task_type, []).append(task.id)
    counts = [TypeCount(task_type, len(found), found[0]) for task_type, found in ids.items()]
    return sorted(counts, key=lambda one: -one.tasks)


async def create_operation(
    database: Database | Session, wanted: OperationRequest, *, workspace: str, actor: str
) -> Operation:
    """Ask for an operation; a runner does it. Tasks that end from now on are none of it."""
    tasks = await count(database, workspace=workspace, wanted=filters.parse(wanted.filter))
    patch = None if wanted.patch is None else await sealed_patch(database, wanted.patch, workspace)
    rows = await database.run(
        "create_operation", workspace, wanted.action.value, wanted.filter, wanted.canary,
        wanted.rate_per_minute, None if patch is None else json.dumps(patch), wanted.agent_type,
        wanted.reason, actor, tasks.number, tasks.is_exact,
    )  # fmt: skip
    return await read_operation(database, rows[0]["id"], workspace=workspace)


async def read_operation(database: Database | Session, number: int, *, workspace: str) -> Operation:
    """Return an operation as it is now; `NotFoundError` where there is none."""
    rows = await database.run("read_operations", workspace, None, number, number, 1)
    if not rows:
        raise NotFoundError(f"there is no operation {number} in workspace {workspace}")
    return _operation(rows[0])


async def list_operations(
    database: Database | Session,
    *,
    workspace: str,
    states: Sequence[State] | None = None,
    limit: int,
    after: int | None = None,
) -> Page[Operation]:
    """Return operations, the latest first; `after` is the cursor of the page before."""
    last = _HIGHEST if after is None else after - 1
    named = None if states is None else [state.value for state in states]
    rows = await database.run("read_operations", workspace, named, 1, last, limit + 1)
    return page_of([_operation(row) for row in rows], limit, lambda one: str(one.id))


async def pause_operation(
    database: Database | Session, number: int, *, workspace: str, actor: str, reason: str | None = None
) -> Operation:
    """Let an operation move nothing more until it is resumed; `ConflictError` where it has ended or is
    paused."""
    return await _change(database, number, workspace, "pause", actor, reason)


async def resume_operation(
    database: Database | Session, number: int, *, workspace: str, actor: str, reason: str | None = None
) -> Operation:
    """Let a paused operation go on where it was; after a canary that failed, with all the others."""
    return await _change(database, number, workspace, "resume", actor, reason)


async def cancel_operation(
    database: Database | Session, number: int, *, workspace: str, actor: str, reason: str | None = None
) -> Operation:
    """End an operation before it is done. What it has moved stays so."""
    return await _change(database, number, workspace, "cancel", actor, reason)


async def _change(
    database: Database | Session, number: int, workspace: str, verb: str, actor: str, reason: str | None
) -> Operation:
    rows = await database.run("change_operation", number, workspace, verb, actor, reason, None)
    if rows and rows[0]["state"] is None:
        raise ConflictError(f"operation {number} is {rows[0]['was']}: it cannot {verb}")
    return await read_operation(database, number, workspace=workspace)


def _operation(row: Row) -> Operation:
    values = dict(row)
    for name in ("patch", "skipped_by"):
        values[name] = loads_stored(values[name])
    values["action"], values["state"] = Action(values["action"]), State(values["state"])
    return Operation(**values)
