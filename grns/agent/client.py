"""The SDK of HTTP workers: they need neither NATS nor Postgres, only the URL of the API."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from grns.agent.blob_methods import BlobMethods
from grns.agent.heartbeat import LeaseRenewer
from grns.agent.http import AgentHttp, own_name
from grns.agent.outcome_methods import OutcomeMethods
from grns.agent.runner import PoolRunner
from grns.agent.task import AgentTask
from grns.errors import (
    ConflictError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    UnavailableError,
)
from grns.model.duration import seconds_named

if TYPE_CHECKING:
    from grns.worker.pool import Pool

_PATIENCE_SECONDS = 15.0  # behind the end of a wait: the answer may be late
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 30.0
_AT_ONCE_SECONDS = 0.1
_LAST_SECONDS = 2.0
_WARN_SECONDS = 60.0
_log = logging.getLogger("grns.agent")


class AgentClient(OutcomeMethods, BlobMethods):
    """An HTTP worker: claims tasks, renews their leases and writes their outcomes through the API.

    Args:
        url: URL of the API, with or without `/api/v1`.
        task_types: task types to claim, such as `["summarise"]`, or `pool.handlers`.
        agent_type: pool of the tasks.
        key: API key with the scope `work`.
        workspace: workspace, for keys of all workspaces.
        name: name of this worker, or of the agent that it is, if that is registered. Defaults to the host's
            name and a random suffix.
        version: version of your code. Issues show with which version a failure began.
        lease_seconds: length of a lease. Defaults to the server's setting, 60 s.
        max_attempts: maximum attempts per task, if the submission does not set it.

    Example:
        async with grns.AgentClient("https://grns.internal", key=KEY, task_types=["summarise"]) as client:
            async for task in client.tasks():
                async with task:
                    task.result = await summarise(task.payload)
    """

    def __init__(
        self,
        url: str,
        *,
        task_types: Iterable[str],
        agent_type: str = "worker",
        key: str | None = None,
        workspace: str | None = None,
        name: str | None = None,
        version: str | None = None,
        lease_seconds: float | None = None,
        max_attempts: int | None = None,
    ) -> None:
        if isinstance(task_types, str):
            raise InvalidInputError("bad_claim", "task_types are a list of names, as ['summarise']")
        order = {
            "agent_type": agent_type,
            "task_types": list(task_types),
            "agent": name or own_name(),
            "version": version,
            "life": secrets.token_hex(8),
            "lease_seconds": lease_seconds,
            "max_attempts": max_attempts,
        }
        self._order = {field: value for field, value in order.items() if value is not None}
        self._http = AgentHttp(url, key=key, workspace=workspace)
        self._heartbeat = LeaseRenewer(self._renew, on_end=self._http.close_blocking)
        self._tasks: set[AgentTask] = set()
        self._awake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._warned_at = -_WARN_SECONDS
        self.order: str | None = None
        """What the agent of this name is told: `drain` or `stop`; None: to work."""

    async def __aenter__(self) -> AgentClient:
        """Begin."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Release the tasks that have not ended, if the API answers, and close the connections."""
        self.stop()
        for task in list(self._tasks):
            with suppress(GrnsError):
                await self.release_task(task, "shutdown")
            self.forget(task)
        await asyncio.to_thread(self._heartbeat.stop, _LAST_SECONDS)
        await self._http.close()

    def stop(self) -> None:
        """End `tasks` after the current task."""
        self._stopping.set()

    def obey(self, order: str) -> None:
        """Do what the agent is told: `drain` ends `tasks` after the current one, `stop` releases that."""
        if self.order != "stop":
            self.order = order
        self.stop()
        if order == "stop":
            for task in list(self._tasks):
                task.end(order)

    def nudged(self) -> None:
        """Make `tasks` ask for a task now. Call it when a request arrives at the agent's `agent_url`."""
        self._awake.set()

    async def register(self, **profile: Any) -> None:
        """Register the agent of this client's `name`, or replace what is registered.

        Args:
            profile: fields of `grns.AgentProfile`, such as `capabilities` or `agent_url`.

        Raises:
            InvalidInputError: a field is invalid, or the host of `agent_url` is not in `GRNS_WAKEUP_HOSTS`.
        """
        said = {"agent_type": self._order["agent_type"], **profile}
        await self._http.put(f"/agents/{self._order['agent']}", said)

    async def next_task(self, wait_seconds: float = 20.0) -> AgentTask | None:
        """Claim the next task.

        The lease is not renewed automatically: call `heartbeat`, use the task as a context manager, or
        iterate over `tasks` instead.

        Args:
            wait_seconds: time to wait for a task. The server can answer earlier.

        Returns:
            The task; None if there was none.

        Raises:
            UnavailableError: the API cannot be reached; nothing was claimed.
            OutcomeUnknownError: a task may have been claimed; it returns when its lease expires.
            InvalidInputError: the API does not accept the arguments.
            UnauthenticatedError: the key is invalid, or lacks the scope `work`.
        """
        asked_at = time.monotonic()
        answer = await self._http.post(
            "/queue/claim",
            {**self._order, "wait_seconds": wait_seconds},
            seconds=wait_seconds + _PATIENCE_SECONDS,
            wants=("task", "token", "lease_seconds", "waited_seconds", "agent_id"),
        )
        return None if answer is None else AgentTask(self, answer, asked_at)

    async def heartbeat(
        self,
        task: AgentTask,
        percent: float | None = None,
        step: str | None = None,
        *,
        checkpoint: Any = None,
        remaining: float | timedelta | None = None,
        stall_timeout: float | timedelta | None = None,
        log: Sequence[Mapping[str, Any]] | None = None,
        usage: Sequence[Mapping[str, Any]] | None = None,
    ) -> bool:
        """Renew the lease of a task, and report its progress.

        Reports are written once a second at most: a sooner one waits for its turn.

        Args:
            task: the claimed task.
            percent: 0 to 100.
            step: what is done now, up to 255 characters.
            checkpoint: a JSON value, which the next attempt finds in `last_checkpoint`.
            remaining: how long it will still take, in seconds or as a `timedelta`.
            stall_timeout: for how long nothing may be reported from now on. Then the attempt is ended, and
                the task is queued again, one priority higher.
            log: up to 100 lines for the log of the task, each with `level`, `message` and `fields`.
            usage: up to 100 items that were used, with the arguments of `AgentTask.usage` as fields.

        Returns:
            Whether the task was cancelled.

        Raises:
            LeaseLostError: the lease has expired.
        """
        asked_at = time.monotonic()
        told = {
            "token": task.token,
            "progress_percent": percent,
            "current_step": step,
            "checkpoint_data": checkpoint,
            "remaining_seconds": seconds_named("remaining", remaining, code="bad_renewal"),
            "stall_seconds": seconds_named("stall_timeout", stall_timeout, code="bad_renewal"),
            "log": log,
            "usage": usage,
        }
        told = {name: value for name, value in told.items() if value is not None}
        try:
            answer = await self._http.post("/queue/renew", told, wants=("cancel_requested",))
        except LeaseLostError:
            task.end("lost")
            raise
        task.expires_at = max(task.expires_at, asked_at + task.lease_seconds)
        task.is_overdue = answer.get("is_overdue", False)
        if order := answer.get("order"):
            self.obey(order)
        is_cancelled: bool = answer["cancel_requested"]
        if is_cancelled:
            task.end("cancelled")
        return is_cancelled

    async def queue_status(self) -> dict[str, Any]:
        """Return the numbers of queued tasks and of workers per pool. Needs the scope `read`."""
        status: dict[str, Any] = await self._http.get("/queue/status")
        return status

    async def tasks(
        self, *, wait_seconds: float = 20.0, pause_seconds: float = 0.0
    ) -> AsyncGenerator[AgentTask, None]:
        """Yield tasks, one at a time, with renewed leases. Retries while the API is away.

        A task that has not ended when you ask for the next one is released. To run several tasks at a time,
        run several loops. If the agent of this name is told to end, the loop ends, and `order` says what.

        Args:
            wait_seconds: time to wait for a task in one request.
            pause_seconds: pause after a request without a task. `nudged` ends it.
        """
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began_at = time.monotonic()
            self._awake.clear()
            try:
                task = await self._claim(wait_seconds)
            except UnavailableError as error:
                self._warn(error)
                await self._rest(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            except ConflictError:  # its agent is told to end
                self.obey("drain")
                return
            pause = _FIRST_PAUSE_SECONDS
            if task is None:
                is_hasty = time.monotonic() - began_at < _AT_ONCE_SECONDS  # a server that ends
                await self._rest(max(pause_seconds, pause if is_hasty else 0.0))
                continue
            self.keep(task)
            try:
                yield task
            finally:
                if task.status is None:
                    await task.settle(None, is_cut=True)
                self.forget(task)

    async def run(self, pool: Pool | Mapping[str, Callable[..., Any]], *, concurrency: int = 1) -> None:
        """Run handlers until `stop`, or until the agent of this name is told to end.

        Args:
            pool: a `grns.Pool`, or functions by task type, which take the payload and perhaps the
                `AgentTask`. A handler's context is the `AgentTask`. Lifespans and dependencies work; hooks of
                attempts, schedules, limits and follow-ups are those of workers (for follow-ups, see
                `client.follow_ups`).
            concurrency: how many tasks to run at a time.

        Example:
            async def summarise(payload: dict, task: grns.AgentTask) -> dict: ...

            handlers = {"summarise": summarise}
            async with grns.AgentClient("https://grns.internal", key=KEY, task_types=handlers) as client:
                await client.run(handlers)
        """
        await PoolRunner(self, pool).run(concurrency)

    def keep(self, task: AgentTask) -> None:
        """Start to renew a task's lease in the background."""
        self._tasks.add(task)
        self._heartbeat.keep(task)

    def forget(self, task: AgentTask) -> None:
        """Stop to renew a task's lease."""
        self._tasks.discard(task)
        self._heartbeat.forget(task)

    def _renew(self, token: str, seconds: float) -> Any:
        return self._http.post_blocking("/queue/renew", {"token": token}, seconds=seconds)

    async def _claim(self, wait_seconds: float) -> AgentTask | None:
        """Wait for a task, or for the end; the API takes back what is claimed for a closed request."""
        asking = asyncio.create_task(self.next_task(wait_seconds))
        ending = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})
        return None if asking.cancelled() else asking.result()

    def _warn(self, error: UnavailableError) -> None:
        """Log that no task can be claimed, and again each minute that it lasts."""
        now = time.monotonic()
        if now - self._warned_at > _WARN_SECONDS:
            self._warned_at = now
            _log.warning("no task can be claimed: %s", error)

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0 or self._stopping.is_set():
            return
        waiting = [asyncio.create_task(event.wait()) for event in (self._awake, self._stopping)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
