"""A task that was submitted: wait for it, read its result, cancel it or run it again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, cast
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from grns.errors import (
    GrnsError,
    InvalidInputError,
    TaskCancelledError,
    TaskDeadError,
    TaskEndedError,
    TaskFailedError,
)
from grns.model.blob import stands_for_document
from grns.model.envelope import first_problem
from grns.model.log_line import Level, TaskLogLine
from grns.model.output_view import OutputEvent
from grns.model.secret import has_secrets
from grns.model.task import Task, TaskStatus
from grns.outbox.events import LogEvent
from grns.tasks.steps import TaskStep

if TYPE_CHECKING:
    from grns.client.client import Client

ResultT = TypeVar("ResultT", covariant=True)

# What handles of other frameworks have, and what to write instead.
_ELSEWHERE = {
    "state": "handle.status()",
    "ready": "handle.get().is_terminal",
    "successful": "handle.status()",
    "failed": "handle.status()",
    "revoke": "handle.cancel()",
    "forget": "nothing: retention deletes tasks",
    "task_id": "handle.id",
}

_ERRORS: dict[TaskStatus, type[TaskEndedError]] = {
    TaskStatus.FAILED: TaskFailedError,
    TaskStatus.DEAD: TaskDeadError,
    TaskStatus.CANCELLED: TaskCancelledError,
}


@dataclass(slots=True, eq=False)  # hashable; made for each task: frozen ones take five times as long to make
class TaskHandle(Generic[ResultT]):
    """A task that was submitted. `client.submit` returns it; `client.handle` makes one of an id.

    Attributes:
        id: id of the task.
        created: whether the submission created it; False if its idempotency key had a task already.
        trace_id: trace of the task.

    Example:
        handle = await client.submit(fetch_page, Page(url="https://example.org"))
        result = await handle.result(timeout=30)
    """

    id: str
    created: bool
    trace_id: str
    _client: Client = field(repr=False, compare=False)
    _result: TypeAdapter[Any] | None = field(default=None, repr=False, compare=False)

    if not TYPE_CHECKING:  # or a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise here than in other frameworks."""
            raise no_attribute(self, name)

    async def wait(self, *, timeout: float | timedelta | None = None) -> Task:
        """Wait until the task ends, and return it. Errors are those of `Client.wait`."""
        return await self._client.wait(self.id, timeout=timeout)

    async def result(self, *, timeout: float | timedelta | None = None) -> ResultT:
        """Wait until the task ends, and return its result, in the type that its handler is annotated with.

        Args:
            timeout: maximum time to wait, in seconds or as a `timedelta`. Defaults to no limit.

        Raises:
            TaskFailedError, TaskDeadError, TaskCancelledError: it ended otherwise: `error.task` says how.
            WaitTimeoutError: it has not ended in time.
            InvalidInputError: `bad_result`: the result does not fit the annotation, as after a change of it.
            SealedError: it has secrets, and no key to open them is here: set GRNS_KEYS_FILE.
        """
        ended = await self.wait(timeout=timeout)
        if (error := _ERRORS.get(ended.status)) is not None:
            raise error(await self._how(ended), task=ended)
        result = ended.result
        if stands_for_document(result):
            return self.read(await self._client.blobs.document(result))
        return self.read(self._client._opened(result) if has_secrets(result) else result)

    async def _how(self, ended: Task) -> str:
        """Describe how a task has ended, and why."""
        error = ended.last_error or {}
        why = ": ".join(part for part in (error.get("class"), error.get("message")) if part)
        if ended.status is TaskStatus.CANCELLED:
            with suppress(GrnsError):  # the end is certain, also if its reason cannot be read now
                why = _why_cancelled(await self.events())
        return f"task {self.id} ({ended.task_type}) is {ended.status}" + (f": {why}" if why else "")

    def read(self, result: Any) -> ResultT:
        """Return a result of the task, which is JSON, in the type that its handler is annotated with."""
        if self._result is None:
            return cast("ResultT", result)
        try:
            return cast("ResultT", self._result.validate_python(result))
        except ValidationError as misfit:
            raise InvalidInputError(
                "bad_result",
                f"the result of task {self.id} does not fit its handler's annotation:"
                f" {first_problem(misfit)}",
            ) from misfit

    async def status(self) -> TaskStatus:
        """Return the current status."""
        return (await self.get()).status

    async def get(self, **unknown: Never) -> Task:
        """Return the current state of the task."""
        check_get(unknown)
        return await self._client.get(self.id)

    async def events(self) -> list[LogEvent]:
        """Return the events of the task, in order."""
        return await self._client.events(self.id)

    async def logs(self, *, level: Level = "DEBUG", limit: int = 200) -> list[TaskLogLine]:
        """Return the latest lines of the log of the task, in order: see `Client.logs`."""
        return await self._client.logs(self.id, level=level, limit=limit)

    async def steps(self) -> list[TaskStep]:
        """Return the first thousand steps that its attempts have recorded: see `Client.steps`."""
        return (await self._client.steps(self.id)).rows

    def stream(self, *, after: str | None = None) -> AsyncGenerator[OutputEvent, None]:
        """Watch what the task streams, until it ends: see `Client.stream`."""
        return self._client.stream(self.id, after=after)

    async def signal(self, name: str, value: Any = None, *, signal_id: UUID | None = None) -> str:
        """Send a signal to the task: see `Client.signal`."""
        return await self._client.signal(self.id, name, value, signal_id=signal_id)

    async def cancel(self, *, reason: str | None = None) -> str:
        """Cancel the task: see `Client.cancel`."""
        return await self._client.cancel(self.id, reason=reason)

    async def redrive(self, *, reason: str | None = None) -> str:
        """Run the task again, with its attempts reset: see `Client.redrive`."""
        return await self._client.redrive(self.id, reason=reason)

    async def reset(self, *, to: str, reason: str | None = None) -> str:
        """Run the task again from one of its steps: see `Client.reset`."""
        return await self._client.reset(self.id, to=to, reason=reason)

    async def pause(self, *, reason: str | None = None) -> str:
        """Pause the task: see `Client.pause_task`."""
        return await self._client.pause_task(self.id, reason=reason)

    async def resume(self, *, reason: str | None = None) -> str:
        """Resume the task: see `Client.resume_task`."""
        return await self._client.resume_task(self.id, reason=reason)


def check_get(unknown: Mapping[str, Any]) -> None:
    """Raise TypeError if `get` has an argument, such as the time-out that `get` of Celery takes."""
    if unknown:
        raise TypeError("handle.get() does not wait, and has no arguments: write handle.result(timeout=…)")


def no_attribute(handle: object, name: str) -> AttributeError:
    """Return the error of an attribute that handles do not have: it says what to write instead."""
    hint = _ELSEWHERE.get(name)
    instead = f": write {hint}" if hint else ""
    return AttributeError(f"a handle has no {name!r}{instead}", name=name, obj=handle)


def _why_cancelled(events: Sequence[LogEvent]) -> str:
    """Return the reason for which a task was cancelled, or the task that it needed."""
    said = next((one.payload for one in reversed(events) if one.kind == "evt.task.cancelled"), {})
    if said.get("dependency") is not None:
        return f"it needs {said['dependency']}, which has not ended that way"
    return said.get("reason") or ""
