"""The client of synchronous applications."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar, Unpack, overload
from uuid import UUID

from grns.client.arguments import SubmissionReader, known_id
from grns.client.client import Client as AsyncClient
from grns.client.handle import TaskHandle as AsyncTaskHandle
from grns.client.workflow import LastTask, left_open
from grns.errors import ConflictError, OutcomeUnknownError
from grns.model.actor import check as check_actor
from grns.model.labels import LabelOptions
from grns.model.submission import Failures, Need, Submission
from grns.model.task import Task
from grns.model.unique import Unique
from grns.outbox.events import LogEvent
from grns.settings import load
from grns.sync.agents import SyncAgents
from grns.sync.background import Background, BackgroundClosedError
from grns.sync.blobs import SyncBlobs
from grns.sync.budgets import SyncBudgets
from grns.sync.follow_ups import SyncFollowUps
from grns.sync.handle import SyncTaskHandle
from grns.sync.limits import SyncTaskLimits
from grns.sync.operator import SyncOperatorMethods
from grns.sync.questions import SyncQuestions
from grns.sync.schedules import SyncSchedules
from grns.sync.usage import SyncUsage
from grns.sync.workflow import SyncWorkflow, SyncWorkflowHandle
from grns.tasks.submit import Prepared, Submitted, submit_in_sync
from grns.tasks.workflow_plan import PlannedWorkflow
from grns.worker.handler import Handler

Answer = TypeVar("Answer")
PayloadT = TypeVar("PayloadT")
ResultOfT = TypeVar("ResultOfT")

_clients: weakref.WeakSet[SyncClient] = weakref.WeakSet()
# Connections that a fork has copied: closing them would disturb those of the parent process.
_inherited: list[Background] = []


class SyncClient(SyncOperatorMethods):
    """The client of synchronous applications: the methods of `grns.Client`, without `await`.

    It connects at the first call that needs it, in a thread of its own, and again after a fork: create it
    once, at the top of a module. Any thread may call it. It has no `subscribe`.

    Args:
        actor: who uses it, such as `billing`: see `grns.connect`.
        settings: settings that override the environment, such as `database_url`.

    Example:
        client = grns.sync.Client()
        handle = client.submit(fetch_page, Page(url="https://example.org"))
        with transaction.atomic():  # of Django
            client.submit(send_mail, {"order": order.id}, connection=connection)
    """

    def __init__(self, *, actor: str | None = None, **settings: Any) -> None:
        if actor is not None:
            check_actor(actor)
        self._actor = actor
        self._settings = settings
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._finalizer: weakref.finalize[[], SyncClient] | None = None
        _clients.add(self)

    def __enter__(self) -> SyncClient:
        """Return the client; the end of the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        with self._lock:
            background, self._background = self._background, None
            if self._finalizer is not None:
                self._finalizer.detach()
        if background is not None:
            background.close()

    @overload
    def submit(
        self,
        task: Handler[PayloadT, ResultOfT],
        payload: PayloadT | None = None,
        *,
        priority: int = 2,
        delay: float | timedelta = 0.0,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        estimate: float | timedelta | None = None,
        agent: str | None = None,
        requires: Sequence[str] = (),
        needs: Sequence[SyncTaskHandle[Any] | Need | str] = (),
        required: int | None = None,
        idempotency_key: str | None = None,
        unique: Unique | None = None,
        trace_id: str | None = None,
        causation_id: UUID | None = None,
        connection: Any = None,
        **labels: Unpack[LabelOptions],
    ) -> SyncTaskHandle[ResultOfT]: ...
    @overload
    def submit(
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
        needs: Sequence[SyncTaskHandle[Any] | Need | str] = (),
        required: int | None = None,
        idempotency_key: str | None = None,
        unique: Unique | None = None,
        trace_id: str | None = None,
        causation_id: UUID | None = None,
        connection: Any = None,
        **labels: Unpack[LabelOptions],
    ) -> SyncTaskHandle[Any]: ...

    def submit(
        self, task: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> SyncTaskHandle[Any]:
        """Create a task and queue it. Arguments and errors are those of `grns.Client.submit`, but for one:

        Args:
            connection: a connection of psycopg or Django (`django.db.connection`), or a `Session` or
                `Connection` of SQLAlchemy on psycopg. The task becomes part of your transaction and exists if
                you commit. For a handler without secrets the client opens no connection of its own.
        """
        if connection is None:
            made = self.ask(lambda client: client.submit(task, payload, **options))
            return SyncTaskHandle(made.id, made.created, made.trace_id, self, task)
        prepared = self._reader.prepare({"task": task, "payload": payload, **options})
        self._seal([prepared])
        (answer,) = submit_in_sync(connection, [prepared], actor=self._actor)
        if isinstance(answer, ConflictError):
            raise answer
        return SyncTaskHandle(answer.id, answer.created, answer.trace_id, self, task)

    def submit_many(
        self, submissions: Iterable[Mapping[str, Any] | Submission], *, connection: Any = None
    ) -> list[SyncTaskHandle[Any] | ConflictError]:
        """Create many tasks: see `grns.Client.submit_many`; `connection` as in `submit`."""
        said = list(submissions)
        tasks = [None if isinstance(one, Submission) else one.get("task") for one in said]

        def handles(answers: Sequence[Any]) -> list[Any]:
            return [
                SyncTaskHandle(one.id, one.created, one.trace_id, self, task)
                if isinstance(one, (Submitted, AsyncTaskHandle))
                else one
                for one, task in zip(answers, tasks, strict=True)
            ]

        if connection is not None:
            prepared = self._reader.prepare_many(said)
            self._seal(prepared)
            return handles(submit_in_sync(connection, prepared, actor=self._actor))
        try:
            return handles(self.ask(lambda client: client.submit_many(said)))
        except OutcomeUnknownError as error:
            error.answers = handles(error.answers)
            raise

    def handle(self, task_id: str, task: Handler[Any, ResultOfT] | None = None) -> SyncTaskHandle[ResultOfT]:
        """Return a handle of a task that exists. Pass its handler to get the result in its type."""
        return SyncTaskHandle(task_id, False, "", self, task)

    def workflow(
        self, name: str, *, fail_after: Failures | None = None, is_open: bool = False
    ) -> SyncWorkflow:
        """Return a new workflow, to which you add tasks: see `grns.Client.workflow`."""
        return SyncWorkflow(self, self._reader, name, fail_after, is_open=is_open)

    def workflow_handle(self, workflow_id: str) -> SyncWorkflowHandle:
        """Return a handle of a workflow that exists: see `grns.Client.workflow_handle`."""
        return SyncWorkflowHandle(known_id(workflow_id), {}, self)

    @contextmanager
    def batch(
        self,
        name: str,
        *,
        on_success: LastTask = None,
        on_failure: LastTask = None,
        on_end: LastTask = None,
        fail_after: Failures | None = None,
    ) -> Iterator[SyncWorkflowHandle]:
        """Create an open workflow, and seal it at the end of the block: see `grns.Client.batch`."""
        flow = self.workflow(name, fail_after=fail_after, is_open=True)
        flow.add_last(on_success=on_success, on_failure=on_failure, on_end=on_end)
        batch = flow.submit()
        with left_open(batch.id):
            yield batch
            batch.seal()

    def _seal(self, tasks: Sequence[Prepared]) -> None:
        """Seal what is secret; what a handler is known of that declares no secrets needs no connection."""
        has_keys = load(**self._settings).keys_file is not None
        if any(one.secret or (one.secret is None and has_keys) for one in tasks):
            self.ask(lambda client: client._seal(tasks))

    def _submit_workflow(
        self, plan: PlannedWorkflow, tasks: Sequence[Any], connection: Any
    ) -> list[SyncTaskHandle[Any]]:
        made: Sequence[Any]
        if connection is None:
            made = self.ask(lambda client: client._submit_workflow(plan, tasks, None))
        else:
            self._seal(plan.tasks)
            made = submit_in_sync(connection, plan.tasks, actor=self._actor, workflow=plan.workflow)
        return [
            SyncTaskHandle(one.id, one.created, one.trace_id, self, task)
            for one, task in zip(made, tasks, strict=True)
        ]

    @property
    def schedules(self) -> SyncSchedules:
        """Tasks that are submitted again and again: see `grns.Client.schedules`."""
        return SyncSchedules(self)

    @property
    def limits(self) -> SyncTaskLimits:
        """How many tasks run at once, and how many begin in a time: see `grns.Client.limits`."""
        return SyncTaskLimits(self)

    @property
    def agents(self) -> SyncAgents:
        """Agents by name: see `grns.Client.agents`."""
        return SyncAgents(self)

    @property
    def blobs(self) -> SyncBlobs:
        """Bytes that payloads, results and messages refer to: see `grns.Client.blobs`."""
        return SyncBlobs(self)

    @property
    def budgets(self) -> SyncBudgets:
        """What tasks may use in a day or a month: see `grns.Client.budgets`."""
        return SyncBudgets(self)

    @property
    def follow_ups(self) -> SyncFollowUps:
        """What is submitted when tasks of a pool have ended: see `grns.Client.follow_ups`."""
        return SyncFollowUps(self)

    @property
    def usage(self) -> SyncUsage:
        """What tasks have used: see `grns.Client.usage`."""
        return SyncUsage(self)

    @property
    def questions(self) -> SyncQuestions:
        """What handlers ask people: see `grns.Client.questions`."""
        return SyncQuestions(self)

    def get(self, task_id: str) -> Task:
        """Return the current state of a task: see `grns.Client.get`."""
        return self.ask(lambda client: client.get(task_id))

    def wait(self, task_id: str, *, timeout: float | timedelta | None = None) -> Task:
        """Wait until a task ends: see `grns.Client.wait`."""
        return self.ask(lambda client: client.wait(task_id, timeout=timeout))

    def events(self, task_id: str) -> list[LogEvent]:
        """Return the events of a task, in order."""
        return self.ask(lambda client: client.events(task_id))

    def signal(self, task_id: str, name: str, value: Any = None, *, signal_id: UUID | None = None) -> str:
        """Send a signal to a task: see `grns.Client.signal`."""
        return self.ask(lambda client: client.signal(task_id, name, value, signal_id=signal_id))

    def cancel(self, task_id: str, *, reason: str | None = None) -> str:
        """Cancel a task: see `grns.Client.cancel`."""
        return self.ask(lambda client: client.cancel(task_id, reason=reason))

    def cancel_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Cancel tasks: see `grns.Client.cancel_many`."""
        return self.ask(lambda client: client.cancel_many(task_ids, reason=reason))

    def redrive(self, task_id: str, *, reason: str | None = None) -> str:
        """Run a task again: see `grns.Client.redrive`."""
        return self.ask(lambda client: client.redrive(task_id, reason=reason))

    def redrive_many(self, task_ids: Sequence[str], *, reason: str | None = None) -> dict[str, str]:
        """Redrive tasks: see `grns.Client.redrive_many`."""
        return self.ask(lambda client: client.redrive_many(task_ids, reason=reason))

    def ask(self, question: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
        """Call the async client in its thread, and return the answer.

        Example:
            client.ask(lambda client: client.get(task_id))
        """
        while True:
            background = self._open()
            try:
                return background.ask(question)
            except BackgroundClosedError:
                continue  # another thread has closed it meanwhile

    def _open(self) -> Background:
        with self._lock:
            background = self._background
            if background is None or background.is_closed:
                background = self._background = Background(self._actor, self._settings)
                self._finalizer = weakref.finalize(self, background.close)
        try:
            background.client()
        except BackgroundClosedError:
            return self._open()
        except BaseException:
            with self._lock:
                if self._background is background:
                    self._background = None
            background.close()
            raise
        return background

    @cached_property
    def _reader(self) -> SubmissionReader:
        settings = load(**self._settings)
        return SubmissionReader(settings.workspace, settings.payload_limits)

    def _forget(self) -> None:
        """Leave the connections to the parent process: this is a child."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if self._background is not None:
            _inherited.append(self._background)
            self._background = None


def _after_fork() -> None:
    for client in list(_clients):
        client._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
