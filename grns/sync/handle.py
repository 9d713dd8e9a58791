"""Handles of tasks, for synchronous applications."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar
from uuid import UUID

from grns.client.client import Client as AsyncClient
from grns.client.handle import TaskHandle as AsyncTaskHandle
from grns.client.handle import check_get, no_attribute
from grns.model.log_line import Level, TaskLogLine
from grns.model.task import Task, TaskStatus
from grns.outbox.events import LogEvent
from grns.worker.handler import Handler

if TYPE_CHECKING:
    from grns.sync.client import SyncClient

ResultT = TypeVar("ResultT", covariant=True)


@dataclass(slots=True, eq=False)
class SyncTaskHandle(Generic[ResultT]):
    """A task that was submitted with a `grns.sync.Client`: as `grns.TaskHandle`, without `await`.

    Attributes:
        id: id of the task.
        created: whether the submission created it; False if its idempotency key had a task already.
        trace_id: trace of the task.

    Example:
        result = client.submit(fetch_page, Page(url="https://example.org")).result(timeout=30)
    """

    id: str
    created: bool
    trace_id: str
    _client: SyncClient = field(repr=False)
    _task: Any = field(default=None, repr=False)

    if not TYPE_CHECKING:  # or a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise here than in other frameworks."""
            raise no_attribute(self, name)

    def wait(self, *, timeout: float | timedelta | None = None) -> Task:
        """Wait until the task ends, and return it: see `grns.Client.wait`."""
        return self._client.wait(self.id, timeout=timeout)

    def result(self, *, timeout: float | timedelta | None = None) -> ResultT:
        """Wait until the task ends, and return its result; errors are those of `grns.TaskHandle.result`."""

        async def ask(client: AsyncClient) -> ResultT:
            task: Handler[Any, ResultT] | None = self._task if isinstance(self._task, Handler) else None
            handle: AsyncTaskHandle[ResultT] = client.handle(self.id, task)
            return await handle.result(timeout=timeout)

        return self._client.ask(ask)

    def status(self) -> TaskStatus:
        """Return the current status."""
        return self.get().status

    def get(self, **unknown: Never) -> Task:
        """Return the current state of the task."""
        check_get(unknown)
        return self._client.get(self.id)

    def events(self) -> list[LogEvent]:
        """Return the events of the task, in order."""
        return self._client.events(self.id)

    def logs(self, *, level: Level = "DEBUG", limit: int = 200) -> list[TaskLogLine]:
        """Return the latest lines of the log of the task, in order: see `grns.Client.logs`."""
        return self._client.logs(self.id, level=level, limit=limit)

    def signal(self, name: str, value: Any = None, *, signal_id: UUID | None = None) -> str:
        """Send a signal to the task: see `grns.Client.signal`."""
        return self._client.signal(self.id, name, value, signal_id=signal_id)

    def cancel(self, *, reason: str | None = None) -> str:
        """Cancel the task: see `grns.Client.cancel`."""
        return self._client.cancel(self.id, reason=reason)

    def redrive(self, *, reason: str | None = None) -> str:
        """Run the task again, with its attempts reset: see `grns.Client.redrive`."""
        return self._client.redrive(self.id, reason=reason)

    def reset(self, *, to: str, reason: str | None = None) -> str:
        """Run the task again from one of its steps: see `grns.Client.reset`."""
        return self._client.reset(self.id, to=to, reason=reason)

    def pause(self, *, reason: str | None = None) -> str:
        """Pause the task: see `grns.Client.pause_task`."""
        return self._client.pause_task(self.id, reason=reason)

    def resume(self, *, reason: str | None = None) -> str:
        """Resume the task: see `grns.Client.resume_task`."""
        return self._client.resume_task(self.id, reason=reason)
