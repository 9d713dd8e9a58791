"""The client: submit tasks, read, cancel and redrive them, and subscribe to events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload
from uuid import UUID
from weakref import WeakSet

from grns.client.arguments import SubmissionReader, checked_timeout, known_id, short
from grns.client.handle import TaskHandle
from grns.client.operator import OperatorMethods
from grns.client.services import ServiceMethods
from grns.client.subscriber import SubscriberMethods
from grns.client.subscription import Subscription
from grns.client.workflows import WorkflowMethods
from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import (
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    UnusableError,
    WaitTimeoutError,
)
from grns.model.json import Limits
from grns.model.labels import LabelOptions
from grns.model.submission import Need, Submission
from grns.model.task import TERMINAL, Task, TaskStatus
from grns.model.unique import Unique
from grns.nats import JetStream
from grns.postgres.batch import Batch
from grns.postgres.database import Database, Session
from grns.tasks import read
from grns.tasks.announce import announce
from grns.tasks.cancel import cancel
from grns.tasks.output import OutputHub
from grns.tasks.redrive import redrive
from grns.tasks.submit import Prepared, Submissions, Submitted, submit_in
from grns.tasks.submit_many import Bulk
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans
from grns.worker.handler import Handler

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")

_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.02, 0.5


class Client(ServiceMethods, OperatorMethods, SubscriberMethods, WorkflowMethods):
    """The client of applications. Create it with `grns.connect()`.

    It needs only Postgres. The broker makes tasks start sooner; only `subscribe` requires it.
    """

    def __init__(
        self,
        *,
        database: Database | Session,
        handlers_database: Database,
        transport: JetStream,
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
        self._reader = SubmissionReader(workspace, payload_limits, spans)
        self._envelope_limits = envelope_limits
        self._actor = actor
        self._emit = emit
        self._spans = spans
        self._submissions = Submissions(database, batch_limit=batch_limit, actor=actor)
        self._statuses: Batch[str, TaskStatus | None] = Batch(self._read_statuses, limit=1000)
        self._dead_letters = DeadLetterQueue(database, emit=emit)
        self._outputs: OutputHub | None = None
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    async def close(self) -> None:
        """End the subscriptions; events that are not handled are given back. The connections stay open."""
        await asyncio.gather(*(subscription.stop() for subscription in self._subscriptions))
        if self._outputs is not None:
            await self._outputs.close()

    @overload
    async def submit(
        self,
        task: Handler[PayloadT, ResultT],
        payload: PayloadT | None = None,
        *,
        priority: int = 2,
        delay: float | timedelta = 0.0,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        estimate: float | timedelta | None = None,
        agent: str | None = None,
        requires: Sequence[str] = (),
        needs: Sequence[TaskHandle[Any] | Need | str] = (),
        required: int | None = None,
        idempotency_key: str | None = None,
        unique: Unique | None = None,
        trace_id: str | None = None,
        causation_id: UUID | None = None,
        connection: Any = None,
        **labels: Unpack[LabelOptions],
    ) -> TaskHandle[ResultT]: ...
    @overload
    async def submit(
        self,
        task: str,
        payload: Any = None,
        *,
        pool: str,
        priority: int = 2,
        delay: float | timedelta = 0.0,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        estimate: float | timedelta | None = None,
        agent: str | None = None,
        requires: Sequence[str] = (),
        needs: Sequence[TaskHandle[Any] | Need | str] = (),
        required: int | None = None,
        idempotency_key: str | None = None,
        unique: Unique | None = None,
        trace_id: str | None = None,
        causation_id: UUID | None = None,
        connection: Any = None,
        **labels: Unpack[LabelOptions],
    ) -> TaskHandle[Any]: ...

    async def submit(
        self, task: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> TaskHandle[Any]:
        """Create a task and queue it.

        Args:
            task: the handler, or the name of its task type.
            payload: what the handler takes: a JSON object, or what pydantic makes one of. It is validated
                here if you pass the handler. Beyond 256 KiB, its longest fields are kept as blobs, and the
                handler gets it whole; such a payload has up to 64 MiB (`GRNS_BLOB_MAX_BYTES`).
            pool: name of the pool. Required with a name; a handler knows its pool.
            priority: 0 (critical) to 3 (background). Defaults to 2.
            delay: delay before the task is queued, in seconds or as a `timedelta`, at most 366 days.
            run_at: time at which the task is queued, with its zone, instead of a delay.
            max_attempts: maximum attempts. Defaults to the handler's setting.
            estimate: how long an attempt is expected to take, in seconds or as a `timedelta`. 30 minutes
                after that grns warns; then an attempt that reports no progress for 10 minutes is ended.
            agent: name of the only agent that may run the task, of this pool.
            requires: capabilities that an agent must have to run it, all of them, at most 16.
            needs: tasks that must end first: handles, ids or `grns.after(...)`, at most 10,000. Each must
                succeed, unless you say otherwise; once that cannot happen any more, the task is cancelled.
            required: how many of `needs` must end as they should. Defaults to all.
            idempotency_key: 1 to 255 printable ASCII characters. The same key returns the existing task.
            unique: `grns.Unique(...)`: merge this submission into a task that waits or runs. Defaults to the
                handler's setting.
            trace_id: trace of the task. Defaults to the active OpenTelemetry trace, or a new one.
            causation_id: id of the message that caused the task.
            connection: asyncpg connection, or SQLAlchemy `AsyncSession` or `AsyncConnection`. The task
                becomes part of your transaction and exists if you commit.
            labels: `title`, `description`, `tags`, `metadata` and `created_by`, for people and filters; and
                `backoff`, delays between attempts that go before those of the handler.

        Returns:
            A handle with the id and the trace of the task, and whether this call created it.

        Raises:
            InvalidInputError: an argument is invalid; nothing was created.
            ConflictError: the idempotency key belongs to a task with another type or payload, or `unique`
                refuses it.
            UnavailableError: Postgres cannot be reached; nothing was created.
            OutcomeUnknownError: the task may exist; submit again with the same idempotency key.

        Example:
            handle = await client.submit(fetch_page, Page(url="https://example.org"), priority=1)
            handle = await client.submit("fetch_page", {"url": "https://example.org"}, pool="shop")
        """
        said = [{"task": task, "payload": payload, **options}]
        (prepared,) = await self._reader.prepare_all(said, self._database)
        task_type = prepared.submission.task_type
        with self._spans.submitting(task_id=prepared.id, task_type=task_type, trace_id=prepared.trace_id):
            submitted = await self._submit(prepared, connection)
        return self._handle(submitted, task)

    async def _submit(self, prepared: Prepared, connection: Any) -> Submitted:
        if connection is not None:
            await self._seal([prepared])
            (answer,) = await submit_in(connection, [prepared], actor=self._actor)
            if isinstance(answer, ConflictError):
                raise answer
            return answer
        submitted = await self._submissions.submit(prepared)
        await announce(self._transport, [prepared])
        return submitted

    async def submit_many(
        self, submissions: Iterable[Mapping[str, Any] | Submission], *, connection: Any = None
    ) -> list[TaskHandle[Any] | ConflictError]:
        """Create many tasks. All are checked before the first is created.

        Args:
            submissions: mappings with the arguments of `submit`.
            connection: as in `submit`. Without it, tasks are created in transactions of 500; if one needs
                others, all in one transaction, or none.

        Returns:
            One answer per submission, in their order: as of `submit`, or a ConflictError.

        Raises:
            InvalidInputError: a submission is invalid; nothing was created.
            UnavailableError: Postgres cannot be reached; nothing was created.
            OutcomeUnknownError: some tasks exist or may exist: its `answers` has one entry per submission.

        Example:
            await client.submit_many({"task": fetch_page, "payload": page} for page in pages)
        """
        said = list(submissions)
        prepared = await self._reader.prepare_all(said, self._database)
        try:
            with self._spans.submitting_many(len(prepared)):
                if connection is None:
                    answers = await Bulk(self._submit_part).submit(prepared)
                else:
                    await self._seal(prepared)
                    answers = await submit_in(connection, prepared, actor=self._actor)
        except OutcomeUnknownError as error:
            error.answers = self._handles(error.answers, said)
            raise
        return self._handles(answers, said)

    def handle(self, task_id: str, task: Handler[Any, ResultT] | None = None) -> TaskHandle[ResultT]:
        """Return a handle of a task that exists. Pass its handler to get the result in its type.

        Example:
            result = await client.handle(order.task_id, fetch_page).result(timeout=30)
        """
        return self._handle(Submitted(known_id(task_id), False, ""), task)

    def _handle(self, submitted: Submitted, task: Any) -> TaskHandle[Any]:
        result = task.call_signature.result if isinstance(task, Handler) else None
        return TaskHandle(submitted.id, submitted.created, submitted.trace_id, self, result)

    def _handles(self, answers: Sequence[Any], said: Sequence[Any]) -> list[Any]:
        tasks = (None if isinstance(one, Submission) else one.get("task") for one in said)
        return [
            self._handle(answer, task) if isinstance(answer, Submitted) else answer
            for answer, task in zip(answers, tasks, strict=True)
        ]

    async def get(self, task_id: str) -> Task:
        """Return the current state of a task.

        Raises:
            NotFoundError: there is no such task in this workspace.
        """
        found = await read.tasks(self._database, [known_id(task_id)], self._workspace)
        if task_id not in found:
            raise self._not_found(task_id)
        return found[task_id]

    async def wait(self, task_id: str, *, timeout: float | timedelta | None = None) -> Task:
        """Wait until a task ends. Retries while Postgres is away.

        Args:
            task_id: id of the task.
            timeout: maximum time to wait, in seconds or as a `timedelta`. 0 checks once; None waits without a
                limit.

        Returns:
            The ended task.

        Raises:
            WaitTimeoutError: the task has not ended in time.
            NotFoundError: there is no such task in this workspace.
        """
        known_id(task_id)
        timeout_seconds = checked_timeout(timeout)
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
        if isinstance(seen, UnavailableError):
            why = f", as far as is known: {seen}"
            raise WaitTimeoutError(f"task {task_id} has not ended within {timeout_seconds} s{why}") from seen
        raise WaitTimeoutError(
            f"task {task_id} has not ended within {timeout_seconds} s: it is {seen}"
            f" (`grns explain {task_id}` says why)"
        )

    async def cancel(self, task_id: str, *, reason: str | None = None) -> str:
        """Cancel a task.

        Args:
            task_id: id of the task.
            reason: text for the task's history.

        Returns:
            `cancelled`; `requested` if it is running: its worker is notified, and it can still succeed;
            otherwise the status with which it had ended before.

        Raises:
            NotFoundError: there is no such task in this workspace.
        """
        answer = (await self.cancel_many([task_id], reason=reason)).get(task_id)
        if answer is None:
            raise self._not_found(task_id)
        return answer

    async def cancel_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Cancel tasks; return the answer of `cancel` by id. Unknown ids are left out."""
        return await cancel(
            self._database,
            self._transport,
            [known_id(task_id) for task_id in task_ids],
            workspace=self._workspace,
            actor=self._actor,
            reason=short(reason),
        )

    async def redrive(self, task_id: str, *, reason: str | None = None) -> str:
        """Run a dead, failed or cancelled task again, with its attempts reset.

        Returns:
            `redriven`; otherwise the status of the task, which cannot be redriven.

        Raises:
            NotFoundError: there is no such task in this workspace.
        """
        answer = (await self.redrive_many([task_id], reason=reason)).get(task_id)
        if answer is None:
            raise self._not_found(task_id)
        return answer

    async def redrive_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Redrive tasks; return the answer of `redrive` by id. Unknown ids are left out."""
        return await redrive(
            self._database,
            self._transport,
            [known_id(task_id) for task_id in task_ids],
            workspace=self._workspace,
            actor=self._actor,
            reason=short(reason),
        )

    async def _look(self, task_id: str) -> Task | UnavailableError | str:
        """Return the task if it has ended, its status if not, or the error while Postgres is away."""
        try:
            status = await self._statuses.ask(task_id)
            if status is None:
                raise self._not_found(task_id)
            return await self.get(task_id) if status in TERMINAL else str(status)
        except UnusableError:
            raise
        except UnavailableError as error:
            return error

    def _opened(self, result: Any) -> Any:
        """Return a result with its secrets."""
        return self._database.vault.open(result, self._workspace)

    async def _submit_part(self, part: Sequence[Prepared]) -> list[Submitted | ConflictError]:
        answers = await self._submissions.submit_many(part)
        await announce(self._transport, part)
        return answers

    def _not_found(self, task_id: str) -> NotFoundError:
        return NotFoundError(
            f"there is no task {task_id} in workspace {self._workspace}."
            " A task that you submit in a transaction exists after the commit"
        )

    async def _read_statuses(self, ids: Sequence[str]) -> list[TaskStatus | None]:
        found = await read.statuses(self._database, ids, self._workspace)
        return [found.get(task_id) for task_id in ids]
