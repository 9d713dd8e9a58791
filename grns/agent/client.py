"""The client of agents that work over HTTP: they need neither NATS nor Postgres, only the API's URL."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from grns.agent.heartbeat import LeaseRenewer
from grns.agent.http import AgentHttp
from grns.agent.task import AgentTask
from grns.errors import Fail, GrnsError, InvalidInputError, LeaseLostError, Retry, UnavailableError
from grns.model.failure import clean, error_message, frames_of
from grns.model.retry import asked_seconds

_PATIENCE_SECONDS = 15.0  # behind the end of a wait: the answer may be late
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 30.0
_AT_ONCE_SECONDS = 0.1
_LAST_SECONDS = 2.0


class AgentClient:
    """A worker over HTTP.

    Example:

        async with grns.AgentClient("https://grns.internal", key=KEY, task_types=["summarise"]) as client:
            async for task in client.tasks():
                async with task:
                    task.result = await summarise(task.payload)

    `task_types` are those that it does, `agent_type` is the pool's. Without a `name` it has one made of the
    host's; `version` is that of its code, by which issues tell since when something fails. It has a task for
    `lease_seconds` (the server's default where unset) unless that is renewed, which `tasks` sees to.
    """

    def __init__(
        self,
        url: str,
        *,
        task_types: Sequence[str],
        agent_type: str = "worker",
        key: str | None = None,
        workspace: str | None = None,
        name: str | None = None,
        version: str | None = None,
        lease_seconds: float | None = None,
        max_attempts: int | None = None,
        nudge_url: str | None = None,
    ) -> None:
        if isinstance(task_types, str):
            raise InvalidInputError("bad_claim", "task_types are a list of names, as ['summarise']")
        order = {
            "agent_type": agent_type,
            "task_types": list(task_types),
            "agent": name or _own_name(),
            "version": version,
            "lease_seconds": lease_seconds,
            "max_attempts": max_attempts,
            "nudge_url": nudge_url,
        }
        self._order = {field: value for field, value in order.items() if value is not None}
        self._http = AgentHttp(url, key=key, workspace=workspace)
        self._heartbeat = LeaseRenewer(self._renew, on_end=self._http.close_blocking)
        self._tasks: set[AgentTask] = set()
        self._awake = asyncio.Event()
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> AgentClient:
        """Begin."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Give back what was begun and not ended, as far as the API answers, and close the connections."""
        self.stop()
        for task in list(self._tasks):
            with suppress(GrnsError):
                await self.release_task(task, "shutdown")
            self.forget(task)
        await asyncio.to_thread(self._heartbeat.stop, _LAST_SECONDS)
        await self._http.close()

    def stop(self) -> None:
        """Have `tasks` end, with the task that it has given last."""
        self._stopping.set()

    def nudged(self) -> None:
        """Have `tasks` look at once: somebody says that there is something. Call it where you take nudges."""
        self._awake.set()

    async def next_task(self, wait_seconds: float = 20.0) -> AgentTask | None:
        """Claim the next task, waiting for one so long (the server may do less); None where there was none.

        It is not renewed by itself: call `heartbeat`, use it as a context, or take tasks from `tasks`. Raises
        `UnavailableError` (`OutcomeUnknownError` where one may have been claimed: it comes again),
        `InvalidInputError` and
        `UnauthenticatedError`.
        """
        asked_at = time.monotonic()
        answer = await self._http.post(
            "/queue/claim",
            {**self._order, "wait_seconds": wait_seconds},
            seconds=wait_seconds + _PATIENCE_SECONDS,
        )
        return None if answer is None else AgentTask(self, answer, asked_at)

    async def complete_task(self, task: AgentTask, result: Any = None) -> str:
        """End a task as succeeded, and return `succeeded`; `result` is any JSON value.

        Raises `LeaseLostError` where the task is another's by now, `InvalidInputError` where the result
        cannot be kept, and `UnavailableError`: say it again then, it is written once.
        """
        try:
            json.dumps(result)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError("bad_result", f"the result is no JSON: {error}") from error
        return await self._end(task, "complete", {"result": result})

    async def fail_task(
        self,
        task: AgentTask,
        error: BaseException | str,
        *,
        retry: bool | None = None,
        after: Any = None,
        error_class: str | None = None,
    ) -> str:
        """Say that a task failed; returns its status: `retry_wait`, or `dead`, `failed`, `cancelled`.

        `error` is an exception or a sentence. It is tried again while it has attempts left, after the usual
        backoff or `after` (seconds or a timedelta), unless `retry` is False. `Retry` and `Fail` say all that
        themselves.
        """
        message = clean(error) if isinstance(error, str) else error_message(error)
        frames = [] if isinstance(error, str) else frames_of(error, module="__main__").lines()
        named = error_class or (error.error_class if isinstance(error, (Retry, Fail)) else None)
        body = {
            "error": {
                "class": clean(str(named or ("error" if isinstance(error, str) else type(error).__name__)))[
                    :255
                ],
                "message": message[:4000],
                "frames": [clean(frame)[:1000] for frame in frames],
            },
            "retry": not isinstance(error, Fail) if retry is None else retry,
            "retry_after_seconds": asked_seconds(error.after if isinstance(error, Retry) else after),
        }
        return await self._end(task, "fail", body)

    async def release_task(self, task: AgentTask, reason: str = "released") -> str:
        """Give a task back, unspent; returns `queued`, or `cancelled` where that was asked for."""
        return await self._end(task, "release", {"reason": clean(reason)[:1000] or "released"})

    async def heartbeat(
        self, task: AgentTask, progress: float | None = None, message: str | None = None
    ) -> bool:
        """Renew a task's lease, and say whether somebody wants its end; `LeaseLostError` where it is over.

        `progress` is from 0 to 1, `message` for people: both are told in the task's history.
        """
        asked_at = time.monotonic()
        told = {"token": task.token, "progress": progress, "message": message}
        try:
            answer = await self._http.post("/queue/renew", told)
        except LeaseLostError:
            task.end("lost")
            raise
        task.expires_at = max(task.expires_at, asked_at + task.lease_seconds)
        is_cancelled: bool = answer["cancel_requested"]
        if is_cancelled:
            task.end("cancelled")
        return is_cancelled

    async def queue_status(self) -> dict[str, Any]:
        """Return how much there is to do, and who does it; needs the scope `read`."""
        status: dict[str, Any] = await self._http.get("/queue/status")
        return status

    async def tasks(
        self, *, wait_seconds: float = 20.0, pause_seconds: float = 0.0
    ) -> AsyncGenerator[AgentTask, None]:
        """Yield tasks, one at a time, each renewed in the background; goes on while the API is away.

        One that was not ended when the next is asked for is given back. Between two looks that found nothing
        it rests for `pause_seconds`, or until `nudged`. For several at a time, run several loops.
        """
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began_at = time.monotonic()
            try:
                task = await self._claim(wait_seconds)
            except UnavailableError:
                await self._rest(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
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

    def keep(self, task: AgentTask) -> None:
        """Renew a task's lease in the background."""
        self._tasks.add(task)
        self._heartbeat.keep(task)

    def forget(self, task: AgentTask) -> None:
        """Renew it no more."""
        self._tasks.discard(task)
        self._heartbeat.forget(task)

    async def _end(self, task: AgentTask, how: str, body: dict[str, Any]) -> str:
        answer = await self._http.post(f"/queue/{how}", {"token": task.token, **body})
        status: str = answer["status"]
        task.status = status
        self.forget(task)
        return status

    def _renew(self, token: str, seconds: float) -> Any:
        return self._http.post_blocking("/queue/renew", {"token": token}, seconds=seconds)

    async def _claim(self, wait_seconds: float) -> AgentTask | None:
        """Wait for a task, or for the end: what is claimed for somebody who has gone, the API takes back."""
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

    async def _rest(self, seconds: float) -> None:
        self._awake.clear()
        if seconds <= 0 or self._stopping.is_set():
            return
        waiting = [asyncio.create_task(event.wait()) for event in (self._awake, self._stopping)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()


def _own_name() -> str:
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:48]
    return f"{host}-{secrets.token_hex(4)}"
