"""An async client in a thread of its own, which synchronous code calls."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from grns.bootstrap.client import connect
from grns.client.client import Client

Answer = TypeVar("Answer")

_CLOSE_SECONDS = 5.0


class Background:
    """Opens a client in a thread; `ask` calls it from any other one."""

    def __init__(self, actor: str | None, settings: dict[str, Any]) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._resources = AsyncExitStack()
        self._thread = threading.Thread(target=self._serve, name="grns client", daemon=True)
        self._thread.start()
        try:
            self._client: Client = self._run(
                self._resources.enter_async_context(connect(actor=actor, **settings))
            )
        except BaseException:
            self._stop()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it: a thread does not survive a fork."""
        return os.getpid() == self._pid

    def ask(self, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Ask the client, and return its answer or raise its error."""
        context = contextvars.copy_context()  # of the caller: its trace, its attempt

        async def ask() -> Answer:
            return await question(self._client)

        async def ask_in_context() -> Answer:
            return await asyncio.create_task(ask(), context=context)

        return self._run(ask_in_context())

    def close(self) -> None:
        """Close the client and end its thread."""
        if not self.is_ours or self._loop.is_closed():
            return
        with suppress(TimeoutError):
            self._run(self._resources.aclose(), within_seconds=_CLOSE_SECONDS)
        self._stop()

    def _run(self, work: Coroutine[Any, Any, Answer], *, within_seconds: float | None = None) -> Answer:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(within_seconds)
        except BaseException:  # Ctrl-C while it waits
            future.cancel()
            raise

    def _serve(self) -> None:
        self._loop.run_forever()
        if unanswered := asyncio.all_tasks(self._loop):  # threads still wait
            for task in unanswered:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(unanswered))
        self._loop.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
