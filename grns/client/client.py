"""The client: submit tasks, ask for them, end them, open them again, and follow events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID
from weakref import WeakSet

from grns.client.subscription import EventHandler, Subscription, known_kind
from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnusableError,
    WaitTimeoutError,
)
from grns.model import subjects
from grns.model.json import Limits
from grns.model.submission import Submission, submission
from grns.model.task import TERMINAL, Status, Task
from grns.nats.interface import Transport
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Session
from grns.tasks import read
from grns.tasks.submit import Prepared, Preparer, Submissions, Submitted, prepare, submit_in
from grns.tasks.submit_many import Bulk
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans

_FIRST_LOOK_SECONDS = 0.02
_LONGEST_LOOK_SECONDS = 0.5
_BROKER_SECONDS = 30.0
_DEEPEST = 10_000


class Client:
    """What applications use. Made by `grns.connect()`; works with Postgres alone.

    The broker, where it can be reached, only makes things quicker; `subscribe` needs it.
    """

    def __init__(
        self,
        *,
        database: Database | Session,
        handlers_database: Database,
        transport: Transport,
        workspace: str,
        payload_limits: Limits,
        envelope_limits: Limits,
        batch_limit: int,
        actor: str | None,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._database = database
        self._handlers_database = handlers_database
        self._transport = transport
        self._workspace = workspace
        self._payload_limits = payload_limits
        self._envelope_limits = envelope_limits
        self._actor = actor
        self._emit = emit
        self._spans = spans
        self._submissions = Submissions(database, batch_limit=batch_limit, actor=actor)
        self._statuses: Batch[str, Status | None] = Batch(self._read_statuses, limit=1000)
        self._dead_letters = DeadLetterQueue(database, emit=emit)
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    async def close(self) -> None:
        """End its subscriptions: what they have not handled is given back. The connections stay."""
        await asyncio.gather(*(subscription.stop() for subscription in self._subscriptions))

    async def submit(
        self,
        task_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        agent_type: str = "worker",
        priority: int = 2,
        delay_seconds: float = 0.0,
        max_attempts: int | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        causation_id: UUID | None = None,
        connection: Any = None,
    ) -> Submitted:
        """Create a task and have it run.

        `payload` is a JSON object (256 KiB); `priority` 0 (critical) to 3 (background);
        the task runs `delay_seconds` from now. The same `idempotency_key` returns the task
        that has it. `connection` (asyncpg, or SQLAlchemy's AsyncSession or AsyncConnection)
        puts the task into your own transaction: it exists if you commit.

        Raises `InvalidInputError`, `ConflictError` (the key belongs to another task), `UnavailableError`
        (nothing happened), `OutcomeUnknownError` (submit again with the same idempotency_key).
        """
        said = submission(
            task_type=task_type,
            payload={} if payload is None else payload,
            agent_type=agent_type,
            priority=priority,
            delay_seconds=delay_seconds,
            max_attempts=max_attempts,
            idempotency_key=idempotency_key,
            trace_id=self._spans.current_trace() if trace_id is None else trace_id,
            causation_id=causation_id,
            workspace=self._workspace,
        )
        prepared = prepare(said, self._payload_limits)
        with self._spans.submitting(task_id=prepared.id, task_type=task_type, trace_id=prepared.trace_id):
            return await self._submit(prepared, connection)

    async def _submit(self, prepared: Prepared, connection: Any) -> Submitted:
        if connection is not None:
            answer = (await submit_in(connection, [prepared], actor=self._actor))[0]
            if isinstance(answer, ConflictError):
                raise answer
            return answer
        submitted = await self._submissions.submit(prepared)
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return submitted

    async def submit_many(
        self, submissions: Iterable[Mapping[str, Any]], *, connection: Any = None
    ) -> list[Submitted | ConflictError]:
        """Create many tasks: each a mapping of `submit`'s fields. The answers come in the same order.

        All are checked before any is created. Without `connection` they are created in
        transactions of 500; with it, all in yours.

        Raises `InvalidInputError` and `UnavailableError` (none exists), and `OutcomeUnknownError` where some
        do or may: its `answers` say of each whether it was created, or the error that kept it from that.
        """
        preparer = Preparer(self._submission, self._payload_limits)
        prepared = [preparer.prepare(one) for one in submissions]
        with self._spans.submitting_many(len(prepared)):
            if connection is not None:
                return await submit_in(connection, prepared, actor=self._actor)
            return await Bulk(self._submit_part).submit(prepared)

    async def get(self, task_id: str) -> Task:
        """Return a task as it is now; `NotFoundError` where there is none."""
        found = await read.tasks(self._database, [_known_id(task_id)], self._workspace)
        if task_id not in found:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return found[task_id]

    async def wait(self, task_id: str, *, timeout_seconds: float | None = None) -> Task:
        """Return the task once it has ended; `WaitTimeoutError` where that takes longer.

        The first answer is waited for in any case: a timeout of 0 asks whether it has ended. While Postgres
        is away it goes on asking.
        """
        _known_id(task_id)
        _check_timeout(timeout_seconds)
        seen = await self._look(task_id)
        pause = _FIRST_LOOK_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not isinstance(seen, Task):
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
                    seen = await self._look(task_id)
        if isinstance(seen, Task):
            return seen
        why = "" if seen is None else f", as far as is known: {seen}"
        raise WaitTimeoutError(f"task {task_id} has not ended within {timeout_seconds} s{why}") from seen

    async def cancel(self, task_id: str, *, reason: str | None = None) -> str:
        """End a task that has not ended.

        Returns `cancelled`, `requested` (it runs: its worker is told, and it may yet succeed),
        or the status it ended with before. Raises `NotFoundError`.
        """
        answer = (await self.cancel_many([task_id], reason=reason)).get(task_id)
        if answer is None:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return answer

    async def cancel_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """End tasks; returns the answer of `cancel` by id, for those that exist."""
        ids = [_known_id(task_id) for task_id in task_ids]
        rows = await self._database.run("cancel", ids, _short(reason), self._workspace, self._actor)
        for agent_id in {row["agent_id"] for row in rows if row["agent_id"] is not None}:
            await self._transport.nudge(subjects.lease_nudge(agent_id))
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return {row["id"]: row["answer"] for row in rows}

    async def redrive(self, task_id: str, *, reason: str | None = None) -> str:
        """Open a dead, failed or cancelled task again, with a fresh budget of attempts.

        Returns `redriven`, or the status of a task that is none of these. Raises `NotFoundError`.
        """
        answer = (await self.redrive_many([task_id], reason=reason)).get(task_id)
        if answer is None:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return answer

    async def redrive_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Open tasks again; returns the answer of `redrive` by id, for those that exist."""
        ids = [_known_id(task_id) for task_id in task_ids]
        rows = await self._database.run("redrive", ids, self._workspace, self._actor, _short(reason))
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return {row["id"]: row["answer"] for row in rows}

    async def history(self, task_id: str) -> list[dict[str, Any]]:
        """Return what happened to a task: its rows of the log, in order."""
        return await read.history(self._database, _known_id(task_id), self._workspace)

    async def subscribe(
        self, name: str, handler: EventHandler, *, kinds: Sequence[str] = ("evt.task.*",), depth: int = 64
    ) -> Subscription:
        """Follow events, durably: `name` remembers how far it got, across restarts and processes.

        `handler(event, connection)` runs inside a transaction in which the event is marked
        as processed: what it writes through `connection` happens once per event, however
        often the event is delivered. Where it raises, the logger `grns` is told, and the event
        comes again. A new `name` begins with the oldest event that the broker still has.
        Raises `InvalidInputError` (no event is of such a kind), and `UnavailableError` where the broker
        cannot be reached for half a minute.
        """
        filters = [subjects.message(known_kind(kind), self._workspace) for kind in kinds]
        if not filters or isinstance(kinds, str):
            raise InvalidInputError("bad_kind", "kinds are a list of at least one, as ['evt.task.*']")
        if type(depth) is not int or not 1 <= depth <= _DEEPEST:
            raise InvalidInputError("bad_depth", f"depth is 1 to {_DEEPEST}")
        subscription = Subscription(
            subjects.token(name, name="name"),
            handler,
            database=self._handlers_database,
            dead_letters=self._dead_letters,
            limits=self._envelope_limits,
            emit=self._emit,
        )
        try:
            async with asyncio.timeout(_BROKER_SECONDS):
                await self._transport.wait_connected()
        except TimeoutError as error:
            raise UnavailableError(f"no broker answered within {_BROKER_SECONDS:.0f} s") from error
        await subscription.open(self._transport, filters, depth)
        self._subscriptions.add(subscription)
        return subscription

    async def _look(self, task_id: str) -> Task | UnavailableError | None:
        """Return the task if it has ended, None if not, and why nobody knows where Postgres is away."""
        try:
            status = await self._statuses.ask(task_id)
            if status is None:
                raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
            return await self.get(task_id) if status in TERMINAL else None
        except UnusableError:
            raise
        except UnavailableError as error:
            return error

    async def _submit_part(self, part: Sequence[Prepared]) -> list[Submitted | ConflictError]:
        answers = await self._submissions.submit_many(part)
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return answers

    def _submission(self, fields: Any) -> Submission:
        said = {"workspace": self._workspace, **_fields(fields)}
        if said.get("trace_id") is None and (trace_id := self._spans.current_trace()) is not None:
            said["trace_id"] = trace_id
        return submission(**said)

    async def _read_statuses(self, ids: Sequence[str]) -> list[Status | None]:
        found = await read.statuses(self._database, ids, self._workspace)
        return [found.get(task_id) for task_id in ids]


def _known_id(task_id: str) -> str:
    return subjects.token(task_id, name="task id")


def _fields(one: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(one, Mapping) and all(isinstance(name, str) for name in one):
        return one
    raise InvalidInputError(
        "bad_submission", f"a submission is a mapping of its fields, not {type(one).__name__}"
    )


def _check_timeout(seconds: float | None) -> None:
    if seconds is None or (type(seconds) in (int, float) and math.isfinite(seconds)):
        return
    raise InvalidInputError("bad_timeout", "timeout_seconds is a number of seconds, or None")


def _short(reason: str | None) -> str | None:
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise InvalidInputError("bad_reason", f"a reason is text, not {type(reason).__name__}")
    return reason[:1000].encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:1000]
