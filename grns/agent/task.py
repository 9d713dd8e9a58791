"""A task that an HTTP worker has claimed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from grns.agent.output import HttpOutputPublisher
from grns.agent.reports import AttemptReports
from grns.agent.steps import HttpStepLog
from grns.errors import (
    Fail,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    TaskSignal,
    UnavailableError,
)
from grns.model.blob import BLOB, parse_document, stands_for_document
from grns.model.json import Limits
from grns.model.log_line import LEVELS
from grns.model.outcome import Claim
from grns.model.report import percent_of, remaining_of, step_of
from grns.model.retry import put_off_seconds
from grns.model.usage import usage_of
from grns.runtime.cancel_scope import CancelScope
from grns.worker.mail_methods import MailMethods
from grns.worker.output import AttemptOutput
from grns.worker.person_methods import PersonMethods
from grns.worker.step import Suspended
from grns.worker.steps import AttemptSteps
from grns.worker.task_logger import TaskLogger

if TYPE_CHECKING:
    from grns.agent.client import AgentClient

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 2.0
_LAST_SECONDS = 10.0
_log = logging.getLogger("grns.agent")


class _NoLogger:
    """HTTP workers have no log of grns: their lines are kept with the task alone."""

    def bind(self, **_fields: Any) -> _NoLogger:
        return self

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_fields: None


class AgentTask(MailMethods, PersonMethods):
    """A claimed attempt of a task.

    As a context manager (`async with task:`), it writes the outcome at the end of its block: succeeded with
    `result`; failed if the block raises (`Retry`, `Snooze` and `Fail` work as in a handler); released if
    the block is cancelled, which happens when the lease expires or the task is cancelled.

    `stream`, `step`, `sleep`, `sleep_until`, `wait_for_signal`, `wait_for_event`, `ask_agent`, `ask_person`
    and `approve` are those of a handler's context: a wait ends the block, and the task is claimed again
    when it is over.

    `last_checkpoint` is what an earlier attempt has kept. `is_overdue` is true once the attempt takes longer
    than its submission expected: report progress, or it is ended.
    """

    def __init__(self, client: AgentClient, answer: Mapping[str, Any], asked_at: float) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._scope: CancelScope | None = None
        task = answer["task"]
        self.token: str = answer["token"]
        self.agent_id: str = answer["agent_id"]
        self.lease_seconds: float = answer["lease_seconds"]
        # No later than by the database's clock: the claim was not made before the request and its wait.
        self.expires_at = asked_at + answer["waited_seconds"] + self.lease_seconds
        self.id: str = task["id"]
        self.task_type: str = task["task_type"]
        self.attempt: int = task["attempt"]
        self.counted_attempt: int = task["counted_attempt"]
        self.is_last_attempt: bool = self.counted_attempt >= task["max_attempts"]
        self.priority: int = task["priority"]
        self.payload: dict[str, Any] = task["payload"]
        self.trace_id: str = task["trace_id"]
        self.last_checkpoint: Any = task.get("checkpoint_data")
        self.is_overdue = False
        self.result: Any = None
        self.state: Any = None
        """What the lifespan of a pool yielded."""
        self.judge: Callable[[BaseException], dict[str, Any]] = lambda _error: {}
        """What `AgentClient.fail_task` is told of an exception besides."""
        self._claim = Claim(
            id=self.id, task_type=self.task_type, priority=self.priority, payload="{}",
            attempt=self.attempt, attempt_limit=1, uncounted_attempts=0, lease_id=UUID(int=0),
            trace_id=self.trace_id, causation_id=None, queued_seconds=0.0, expires_at=self.expires_at,
        )  # fmt: skip
        self._attempt_steps: AttemptSteps | None = None
        self._publisher = HttpOutputPublisher(client._http, self.token)
        self._output = AttemptOutput(self._claim, lambda: self.ended == "lost", self._publisher)
        self._reports = AttemptReports(self)
        self.status: str | None = None
        self.ended: str | None = None

    def __repr__(self) -> str:
        """Return a description without the claim token."""
        return f"AgentTask({self.id!r}, {self.task_type!r}, attempt={self.attempt}, status={self.status!r})"

    @property
    def lost(self) -> bool:
        """Whether this attempt should end: its lease is lost, its time is up, or it was cancelled.

        Code in a thread should check it periodically.
        """
        return self.ended is not None

    async def heartbeat(self, percent: float | None = None, step: str | None = None, **options: Any) -> bool:
        """Renew the lease and report progress; arguments and answer are those of `AgentClient.heartbeat`."""
        return await self._client.heartbeat(self, percent, step, **options)

    def progress(
        self,
        percent: float | None = None,
        step: str | None = None,
        *,
        remaining: float | timedelta | None = None,
    ) -> None:
        """Report progress within a second, without waiting for it, as a handler's `ctx.progress`."""
        self._reports.report(
            percent=percent_of(percent), step=step_of(step), remaining=remaining_of(remaining)
        )

    def checkpoint(self, data: Any) -> None:
        """Keep JSON for the next attempt, within a second, as a handler's `ctx.checkpoint`."""
        self._reports.report(checkpoint=data)

    def usage(self, item: str, **used: Any) -> None:
        """Note what this attempt has used, within a second, as a handler's `ctx.usage`.

        Example:
            task.usage("draft", model="gpt-5", input_tokens=1200, output_tokens=300)
        """
        self._reports.use(usage_of(item, **used))

    @property
    def log(self) -> TaskLogger:
        """Logger whose lines are kept in the log of the task within a second, as a handler's `ctx.log`.

        Example:
            task.log.info("read", page=7)
        """
        return TaskLogger(_NoLogger(), self._note_line, LEVELS["DEBUG"])

    def _note_line(self, level: int, message: str, fields: str | None) -> None:
        self._reports.log(level, message, fields)

    def stream(self, chunk: Any, *, kind: str | None = None) -> None:
        """Stream text or a JSON value to those who watch the task, as a handler's `ctx.stream`."""
        self._output.write(chunk, kind)

    async def _document(self, value: Any) -> Any:
        if not stands_for_document(value):
            return value
        body = await self._client.get_blob(value)
        return await asyncio.to_thread(parse_document, body, value[BLOB])

    async def _send_mail(
        self,
        type: str,
        payload: Mapping[str, Any] | None,
        *,
        to: str,
        about: str | None,
        message_id: str,
        expires: float,
    ) -> None:
        said = {
            "type": type, "payload": dict(payload or {}), "to": to, "about": about or self.id,
            "expires_seconds": expires,
        }  # fmt: skip
        pause = _FIRST_PAUSE_SECONDS
        while True:  # it has an id: sent twice it is sent once
            try:
                await self._client._http.post("/mail", said | {"message_id": message_id, "token": self.token})
            except UnavailableError:
                if time.monotonic() > self.expires_at or self.ended is not None:
                    raise
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                return

    def _own_steps(self, _name: str) -> AttemptSteps:
        if self._attempt_steps is None:
            log = HttpStepLog(self._client._http, self.token)
            self._attempt_steps = AttemptSteps(self._claim, log, Limits(), is_first=self.attempt == 1)
        return self._attempt_steps

    def end(self, reason: str) -> None:
        """Cancel the block: the lease is lost, or the task was cancelled. Any thread may call it."""
        if self.ended is None:
            self.ended = reason
            with suppress(RuntimeError):  # a loop that is closed has nothing to cut
                self._loop.call_soon_threadsafe(self._cut)

    def hear(self, order: str) -> None:
        """Pass on what the worker's agent is told. Any thread may call it."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._client.obey, order)

    def _cut(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def __aenter__(self) -> AgentTask:
        """Start to renew the lease."""
        self._client.keep(self)
        self._scope = CancelScope(None)
        self._scope.__enter__()
        if self.ended is not None:
            self._cut()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Write the outcome unless the block has. Exceptions of the block do not propagate."""
        is_cut = False
        try:
            if self._scope is not None:
                self._scope.__exit__(kind, error, trace)
        except TimeoutError:
            is_cut = True
        is_ours = is_cut or isinstance(error, (Exception, Suspended))
        try:
            if self.status is None:
                await self.settle(error, is_cut=is_cut)
        finally:
            self._client.forget(self)
        return is_ours

    async def settle(self, error: BaseException | None, *, is_cut: bool = False) -> None:
        """Write the outcome; retry until the lease expires, because another worker can own the task
        afterwards.

        Who is cancelled meanwhile waits a few seconds more for it: the work is done.
        """
        settling = asyncio.ensure_future(self._settle(error, is_cut=is_cut))
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            await asyncio.wait({settling}, timeout=_LAST_SECONDS)
            settling.cancel()
            raise

    async def _settle(self, error: BaseException | None, *, is_cut: bool) -> None:
        client, deadline = self._client, self.expires_at  # renewals go on: they do not move it
        if self._attempt_steps is not None and self._attempt_steps.is_running:
            await self._attempt_steps.close(lambda: self.ended is not None)
        self._output.end(is_suspended=isinstance(error, Suspended))
        await self._publisher.close()
        await self._reports.close()
        if self.ended == "lost":
            self.status = "lost"
            return
        try:
            await self._write(self._outcome(error, is_cut=is_cut), deadline)
        except InvalidInputError as refused:
            is_result = error is None
            told = f"{'the result' if is_result else 'what the handler asks for'} cannot be stored: {refused}"
            unfit = Fail(told, error_class="bad_result" if is_result else "bad_handler")
            await self._write(lambda: client.fail_task(self, unfit), deadline)

    def _outcome(self, error: BaseException | None, *, is_cut: bool) -> Callable[[], Awaitable[str]]:
        """Return what writes the outcome."""
        client = self._client
        if isinstance(error, Suspended) and self.ended is None:
            return partial(client.suspend_task, self, error.suspension)
        if is_cut or self._was_stopped(error):
            return partial(client.release_task, self, self.ended or "shutdown")
        if (seconds := put_off_seconds(error)) is not None:
            return partial(client.snooze_task, self, seconds)
        if error is not None:
            return partial(client.fail_task, self, error, **self.judge(error))
        return partial(client.complete_task, self, self.result)

    def _was_stopped(self, error: BaseException | None) -> bool:
        """Return whether an error only reflects that the block was cancelled."""
        if error is None or isinstance(error, TaskSignal):
            return False
        return self.ended is not None or not isinstance(error, Exception)

    async def _write(self, ask: Callable[[], Awaitable[str]], deadline: float) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while self.status is None:
            try:
                await ask()
            except LeaseLostError:
                self.status = "lost"
            except UnavailableError as error:
                if time.monotonic() > deadline:
                    _log.warning("task %s: its outcome is not written: %s", self.id, error)
                    self.status = "lost"
                    return
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            except InvalidInputError:
                raise
            except GrnsError as error:  # the key was revoked, or grns knows no such task: not ours to end
                _log.warning("task %s: its outcome is refused: %s", self.id, error)
                self.status = "lost"
