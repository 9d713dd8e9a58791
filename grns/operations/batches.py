"""Operations as their runner does them: taken, moved batch by batch, followed until all has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from grns.errors import InvalidInputError
from grns.model import filter as filters
from grns.model.blob import check_patch
from grns.model.json import Limits, dumps, loads_stored, merge_patch
from grns.operations.model import Action, State, since
from grns.postgres.database import Database, Row
from grns.postgres.paging import Page
from grns.tasks.search import TaskSummary, list_tasks

_FIRST_WALK = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """An operation that this runner has, until another one takes it and raises its `epoch`."""

    id: int
    epoch: int
    workspace: str
    action: Action
    filter: str
    canary: bool
    rate_per_minute: float | None
    patch: dict[str, Any] | None
    created_at: datetime
    age_seconds: float
    state: State
    page_cursor: str | None
    is_exhausted: bool
    canary_task_id: str | None
    moved: int

    @property
    def needs_canary(self) -> bool:
        """Say whether the next task that is moved is to be the canary."""
        return self.canary and self.canary_task_id is None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task as it was read; the `payload` that it is to have, if another one; a `refusal` keeps it out."""

    id: str
    version: int
    updated_at: datetime
    payload: str | None = None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class OperationBatch:
    """Some tasks to move, the cursor behind them, and whether nothing is left there."""

    candidates: Sequence[Candidate]
    cursor: str | None
    is_end: bool

    def refused(self, code: str) -> OperationBatch:
        """Return the batch with none that may be moved."""
        return replace(self, candidates=[replace(one, refusal=code) for one in self.candidates])


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of a batch: the operation's state, how many were moved, which workers are to hear of it."""

    state: State
    tasks: int
    agent_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Followed:
    """What came of a look at redriven tasks: how many were looked at, and how many of these had ended."""

    operation: int
    seen: int
    ended: int


async def take(database: Database, owner: str, *, lease_seconds: float, pause_seconds: float) -> Taken | None:
    """Take the operation that is due first, None where none is.

    It is due again after the pause, behind the others, unless a batch of it says otherwise.
    """
    rows = await database.run("take_operation", owner, lease_seconds, pause_seconds)
    if not rows:
        return None
    values = dict(rows[0])
    values["patch"] = loads_stored(values["patch"])
    values["action"], values["state"] = Action(values["action"]), State(values["state"])
    return Taken(**values)


async def next_due(database: Database, owner: str) -> float | None:
    """Return in how many seconds the next operation can be taken, None where there is none."""
    rows = await database.run("next_operation", owner)
    seconds: float | None = rows[0]["seconds"]
    return seconds


async def drop(database: Database, owner: str) -> None:
    """Give up all that a runner has taken."""
    await database.run("drop_operations", owner)


async def next_batch(database: Database, taken: Taken, limit: int, limits: Limits) -> OperationBatch:
    """Return the next tasks that an operation is about; it may be none, with more behind them.

    Those that have ended, or came, after it was asked for are none of it. Those that were moved
    since they were found are in it, and will be counted as skipped.
    """
    if taken.is_exhausted:
        return OperationBatch((), taken.page_cursor, is_end=True)
    if taken.action is Action.CANCEL:
        return await _next_to_cancel(database, taken, limit)
    page = await _page(database, taken, limit, taken.page_cursor)
    found = [_candidate(task) for task in page.rows if _is_of(taken, task)]
    if taken.patch is not None and found:
        found = await _patched(database, found, taken, limits)
    return OperationBatch(found, page.next_cursor, page.next_cursor is None)


async def _next_to_cancel(database: Database, taken: Taken, limit: int) -> OperationBatch:
    """Return the next tasks to cancel.

    They go from one state to the next meanwhile, and so perhaps to where the walk has been already: it is
    made again until nothing was moved in one. In front of the cursor stands what had been moved before it.
    """
    before, _, behind = (taken.page_cursor or f"{_FIRST_WALK}:").rpartition(":")
    page = await _page(database, taken, limit, behind or None)
    found = [_candidate(task) for task in page.rows if _is_of(taken, task)]
    if found:  # what runs and was asked to end is still there
        rows = await database.run("read_moved", [one.id for one in found], taken.id)
        asked = {row["id"] for row in rows}
        found = [one for one in found if one.id not in asked]
    if page.next_cursor is not None:
        return OperationBatch(found, f"{before}:{page.next_cursor}", is_end=False)
    # What was found in the first walk may have been claimed since: it is made twice.
    is_end = int(before) == taken.moved or (int(before) == _FIRST_WALK and not found and not taken.moved)
    return OperationBatch(found, f"{taken.moved}:", is_end=is_end)


async def _page(database: Database, taken: Taken, limit: int, behind: str | None) -> Page[TaskSummary]:
    return await list_tasks(
        database,
        workspace=taken.workspace,
        wanted=since(filters.parse(taken.filter), taken.age_seconds),
        limit=limit,
        after=behind,
    )


def _is_of(taken: Taken, task: TaskSummary) -> bool:
    """Return whether a task existed, or had ended, when the operation was created."""
    since_then = task.created_at if taken.action is Action.CANCEL else task.finished_at
    return since_then is not None and since_then <= taken.created_at


def _candidate(task: TaskSummary) -> Candidate:
    return Candidate(task.id, task.version, task.updated_at)


async def _patched(
    database: Database, found: Sequence[Candidate], taken: Taken, limits: Limits
) -> list[Candidate]:
    """Return the tasks with their new payloads; who has changed one since it was found is noticed later."""
    rows = await database.run("read_payloads", [one.id for one in found], taken.workspace)
    payloads = {row["id"]: row["payload"] for row in rows}
    patched = []
    for one in found:
        patched.append(_with_payload(one, payloads.get(one.id), taken, limits))
        await asyncio.sleep(0)  # a payload may be large, and others share this loop
    return patched


def _with_payload(one: Candidate, payload: str | None, taken: Taken, limits: Limits) -> Candidate:
    if payload is None:
        return replace(one, refusal="moved_meanwhile")  # it has been deleted
    try:
        before = loads_stored(payload)
        check_patch(before, taken.patch)
        return replace(one, payload=dumps(merge_patch(before, taken.patch), limits))
    except InvalidInputError as error:
        return replace(one, refusal=error.code)


async def move(database: Database, taken: Taken, batch: OperationBatch) -> Moved | None:
    """Do to a batch what the operation is for, and note how far that is, in one statement.

    None where it is not ours any more, or may not go on: then nothing was done.
    """
    ids = [one.id for one in batch.candidates]
    versions = [one.version for one in batch.candidates]
    refusals = [one.refusal for one in batch.candidates]
    if taken.action is Action.REDRIVE:
        rows = await database.run(
            "redrive_batch", taken.id, taken.epoch, ids, versions,
            [one.updated_at for one in batch.candidates], [one.payload for one in batch.candidates],
            refusals, batch.cursor, batch.is_end, taken.needs_canary,
        )  # fmt: skip
    else:
        name = "discard_batch" if taken.action is Action.DISCARD else "cancel_batch"
        rows = await database.run(
            name, taken.id, taken.epoch, ids, versions, refusals, batch.cursor, batch.is_end
        )
    if not rows:
        return None
    agent_ids = rows[0]["agent_ids"] if taken.action is Action.CANCEL else ()
    return Moved(State(rows[0]["state"]), rows[0]["moved"], agent_ids)


async def judge_canary(database: Database, taken: Taken, *, pause_seconds: float) -> Row | None:
    """Go on, wait or pause, as the canary has fared; returns the state and its reason, or None as `move`."""
    rows = await database.run("judge_canary", taken.id, taken.epoch, pause_seconds)
    return rows[0] if rows else None


async def fail(database: Database, taken: Taken, reason: str) -> None:
    """End an operation that cannot be done."""
    await database.run("change_operation", taken.id, taken.workspace, "fail", None, reason, taken.epoch)


async def follow(database: Database, limit: int, *, pause_seconds: float) -> Followed | None:
    """Look what became of some redriven tasks, None where it is not time for that."""
    rows = await database.run("follow_operation", limit, pause_seconds)
    return Followed(*rows[0]) if rows else None
