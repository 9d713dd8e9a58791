"""Submitting: tasks with their events, in one statement."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from grns.errors import ConflictError, GrnsError, InvalidInputError
from grns.model.json import Limits, dumps
from grns.model.secret import Path, check_clear
from grns.model.submission import Failures, Submission
from grns.model.task import new_id, next_id
from grns.postgres import user_connection
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Session
from grns.postgres.singles import send_all
from grns.tasks.secrets import seal_payloads

_MOST_KNOWN = 1000
_EMPTY: dict[str, Any] = {}


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class Prepared:
    """A submission that is checked, has its id, and its payload as text.

    `secret` leads to what its handler declares as secret; None: the handler is not known. `is_sealed` tells
    that what is secret is sealed in the text.
    """

    id: str
    submission: Submission
    payload: str
    trace_id: str
    secret: tuple[Path, ...] | None = None
    is_sealed: bool = False


@dataclass(slots=True)  # made for each task: frozen ones take five times as long to make
class Submitted:
    """The answer to a submission: id and trace of the task, and whether it created the task."""

    id: str
    created: bool
    trace_id: str


def prepare(submission: Submission, limits: Limits) -> Prepared:
    """Give a submission its id and its payload's text; `InvalidInputError` where the payload cannot be
    kept."""
    return _prepared(submission, submission.payload, limits)


def prepare_stored(submission: Submission, limits: Limits) -> Prepared:
    """Do the same with a payload that was stored before, as that of a schedule: its secrets are sealed."""
    return _made(submission, dumps(submission.payload, limits), is_sealed=True)


def _prepared(submission: Submission, payload: dict[str, Any], limits: Limits) -> Prepared:
    text = dumps(payload, limits)
    check_clear(text)
    return _made(submission, text)


def _made(submission: Submission, text: str, *, is_sealed: bool = False) -> Prepared:
    task_id = new_id(time.time_ns() // 1_000_000, getrandbits(80).to_bytes(10, "big"))
    return Prepared(task_id, submission, text, submission.trace_id or new_trace_id(), is_sealed=is_sealed)


def new_trace_id() -> str:
    """Return the id of a trace, in the form of OpenTelemetry."""
    return f"{getrandbits(128):032x}"


def numbered_after(prepared: Prepared, latest: str) -> Prepared:
    """Give a task an id after the latest one: tasks of a workflow are listed in the order of their ids."""
    if prepared.id <= latest:
        prepared.id = next_id(latest)
    return prepared


def in_order(batch: Sequence[Prepared]) -> None:
    """Give tasks that were just prepared ascending ids: those of one age are admitted and listed by id."""
    ids = sorted([one.id for one in batch])
    for one, task_id in zip(batch, ids, strict=True):
        one.id = task_id


class Preparer:
    """Prepares many submissions: what they have in common, all but their payloads, is checked once.

    `read` checks all of one and returns it, or raises `InvalidInputError`; `payload` returns that of one.
    """

    def __init__(
        self,
        read: Callable[[Any], Submission],
        limits: Limits,
        *,
        payload: Callable[[Any], Any] = lambda fields: fields.get("payload", _EMPTY),
    ) -> None:
        self._read = read
        self._limits = limits
        self._payload = payload
        self._known: dict[tuple[Any, ...] | None, Submission] = {}

    def prepare(self, fields: Any) -> Prepared:
        """Prepare one submission; `InvalidInputError` where anything in it is wrong."""
        key = _all_but_payload(fields)
        try:
            said = self._known.get(key)
        except TypeError:  # lists and the like, which are wrong everywhere
            key = said = None
        if said is not None:
            with suppress(
                InvalidInputError
            ):  # met again below, where all of it is read: its first fault is told
                payload = self._payload(fields)
                if type(payload) is dict:
                    return _prepared(said, payload, self._limits)
        said = self._read(fields)
        if key is not None and said.unique is None and len(self._known) < _MOST_KNOWN:
            self._known[key] = said
        return prepare(said, self._limits)


def _all_but_payload(fields: Any) -> tuple[Any, ...] | None:
    """Return what can be compared of a submission besides its payload; None where it is not worth it."""
    if type(fields) is not dict or "idempotency_key" in fields:
        return None
    # With the types: True is 1 for Python, but no priority.
    return tuple([(name, type(value), value) for name, value in fields.items() if name != "payload"])


def columns(batch: Sequence[Prepared], actor: str | None = None, *, wakes: bool = False) -> tuple[Any, ...]:
    """Return what `submit_tasks` takes: arrays, short where they say one thing or nothing, and who asks.

    With `wakes`, Postgres wakes the relay at the commit: for transactions that grns does not commit.
    """
    said = [prepared.submission for prepared in batch]
    return (
        [prepared.id for prepared in batch],
        _one_if_alike([one.workspace for one in said]),
        _one_if_alike([one.task_type for one in said]),
        _one_if_alike([one.agent_type for one in said]),
        _one_if_alike([one.priority for one in said]),
        [prepared.payload for prepared in batch],
        _none_if_unsaid([one.first_delay for one in said]),
        _none_if_unsaid([one.max_attempts for one in said]),
        _none_if_unsaid([one.idempotency_key for one in said]),
        [prepared.trace_id for prepared in batch],
        _none_if_unsaid([one.causation_id for one in said]),
        actor,
        _none_if_unsaid([one.run_at for one in said]),
        wakes,
        _none_if_unsaid([one.unique and one.unique.text() for one in said]),
        _none_if_unsaid([one.estimated_duration_minutes for one in said]),
        _none_if_unsaid([one.route for one in said]),
        _none_if_unsaid([one.label_text() for one in said]),
    )


def _one_if_alike(column: list[Any]) -> list[Any]:
    return column[:1] if len(set(column)) == 1 else column


def _none_if_unsaid(column: list[Any]) -> list[Any]:
    return column if any(column) else []


@dataclass(frozen=True, slots=True)
class NewWorkflow:
    """A workflow to create, or to extend. `names` has the names of its tasks by id, `last` its last ones.

    While it is open, tasks may be added to it.
    """

    id: str
    workspace: str
    name: str
    names: Mapping[str, str]
    last: Collection[str] = ()
    fail_after: Failures | None = None
    is_open: bool = False
    extends: bool = False


def call(
    batch: Sequence[Prepared],
    actor: str | None,
    workflow: NewWorkflow | None = None,
    *,
    wakes: bool = False,
) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that creates tasks, and its arguments.

    A workflow, and a batch in which a task needs others, are created as a whole or not at all. Each task
    stands behind those that it needs.
    """
    if workflow is None and not any(one.submission.needs for one in batch):
        return "submit_tasks", columns(batch, actor, wakes=wakes)
    if any(one.submission.unique for one in batch):
        raise InvalidInputError(
            "bad_submission", "unique: tasks of workflows, and those that need others, are never merged"
        )
    if len({one.submission.workspace for one in batch}) > 1:
        raise InvalidInputError(
            "bad_submission",
            "workspace: tasks that are created with one that needs others are in one workspace",
        )
    text = f"[{','.join(_graph_task(one, workflow) for one in batch)}]"
    said = None if workflow is None else _workflow(workflow)
    workspace = batch[0].submission.workspace if workflow is None else workflow.workspace
    return "submit_graph", (text, workspace, actor, said)


def _workflow(workflow: NewWorkflow) -> str:
    fields: dict[str, Any] = {"id": workflow.id, "name": workflow.name}
    fields |= {name: True for name in ("is_open", "extends") if getattr(workflow, name)}
    if workflow.fail_after is not None:
        fields["fail_after"] = workflow.fail_after.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(fields)


def _graph_task(prepared: Prepared, workflow: NewWorkflow | None) -> str:
    said = prepared.submission
    fields = said.model_dump(
        mode="json", exclude={"payload", "workspace"}, exclude_none=True, exclude_defaults=True
    )
    fields |= {"id": prepared.id}
    if workflow is None or not workflow.extends:  # that of the workflow otherwise
        fields |= {"trace_id": prepared.trace_id}
    if workflow is not None:
        fields |= {"name": workflow.names.get(prepared.id), "is_last": prepared.id in workflow.last}
    return f'{json.dumps(fields)[:-1]},"payload":{prepared.payload}}}'


def answers(batch: Sequence[Prepared], rows: Sequence[Any]) -> list[Submitted | ConflictError]:
    """Match the statement's rows to the batch; a key that belongs to another task is a `ConflictError`.

    What has no row was created, but a graph has a row for each task.
    """
    if rows and "created" in rows[0].keys():  # noqa: SIM118  # a record is a sequence of values
        return [Submitted(row["task_id"], row["created"], row["trace_id"]) for row in rows]
    answered: list[Submitted | ConflictError] = [Submitted(one.id, True, one.trace_id) for one in batch]
    for row in rows:
        place = row["ordinal"] - 1
        answered[place] = _answer(batch[place], row)
    return answered


def _answer(prepared: Prepared, row: Any) -> Submitted | ConflictError:
    key = prepared.submission.idempotency_key
    if row["task_id"] is None:
        return ConflictError(
            f"idempotency_key {key!r} is taken by a task that this transaction cannot see; try again"
        )
    if not row["same"] and prepared.submission.is_refusing:
        return ConflictError(f"task {row['task_id']} has the same unique key")
    if not row["same"]:
        return ConflictError(
            f"idempotency_key {key!r} belongs to task {row['task_id']}, which is another one"
        )
    return Submitted(row["task_id"], False, row["trace_id"])


class Submissions:
    """Creates tasks, all for one actor; single ones that arrive together share a statement."""

    def __init__(self, database: Database | Session, *, batch_limit: int, actor: str | None = None) -> None:
        self._database = database
        self._actor = actor
        self._batch: Batch[Prepared, Submitted | GrnsError] = Batch(self._submit_each, limit=batch_limit)
        # Only a key can have to wait for a stranger: what has none does not wait with it.
        self._keyed: Batch[Prepared, Submitted | GrnsError] = Batch(self._submit_each, limit=batch_limit)

    async def submit(self, prepared: Prepared) -> Submitted:
        """Create one task, or return the one that has its key."""
        answer: Submitted | GrnsError
        await seal_payloads(self._database, [prepared])  # alone: what is wrong with it is not that of others
        if prepared.submission.needs:
            (answer,) = await self.submit_many([prepared])
        else:
            batch = self._keyed if prepared.submission.has_key else self._batch
            answer = await batch.ask(prepared)
        if isinstance(answer, GrnsError):
            raise answer
        return answer

    async def submit_many(self, batch: Sequence[Prepared]) -> list[Submitted | ConflictError]:
        """Create many tasks in one statement and one transaction: all that do not conflict."""
        await seal_payloads(self._database, batch)
        statement, arguments = call(batch, self._actor)
        return answers(batch, await self._database.run(statement, *arguments))

    async def submit_workflow(
        self, batch: Sequence[Prepared], workflow: NewWorkflow
    ) -> list[Submitted | ConflictError]:
        """Create a workflow and its tasks, all or none."""
        await seal_payloads(self._database, batch)
        statement, arguments = call(batch, self._actor, workflow)
        return answers(batch, await self._database.run(statement, *arguments))

    async def _submit_each(self, batch: Sequence[Prepared]) -> Sequence[Submitted | GrnsError]:
        """Create many in one statement; each alone if another session has locked a key, or a pool is full."""
        return await send_all(self.submit_many, batch)


async def submit_in(
    connection: Any,
    batch: Sequence[Prepared],
    *,
    actor: str | None = None,
    workflow: NewWorkflow | None = None,
) -> list[Submitted | ConflictError]:
    """Create tasks inside the caller's transaction. Nothing exists unless the caller commits.

    Their secrets are sealed: see `seal_payloads`.
    """
    return answers(batch, await user_connection.fetch(connection, *call(batch, actor, workflow, wakes=True)))


def submit_in_sync(
    connection: Any,
    batch: Sequence[Prepared],
    *,
    actor: str | None = None,
    workflow: NewWorkflow | None = None,
) -> list[Submitted | ConflictError]:
    """Do the same on the connection of a synchronous driver."""
    return answers(batch, user_connection.fetch_sync(connection, *call(batch, actor, workflow, wakes=True)))
