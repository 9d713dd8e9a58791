"""An async client in a thread of its own, which synchronous code calls."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from grns.bootstrap.client import connect
from grns.client.client import Client
from grns.errors import InvalidInputError

Answer = TypeVar("Answer")

_GRACE_SECONDS = 2.0  # for calls that are under way when another thread closes the client
_OPEN_SECONDS = 1.0  # a connection that is cut off while it opens may stay open
_CLOSE_SECONDS = 5.0


class BackgroundClosedError(Exception):
    """It was closed between two calls: open another one."""


class Background:
    """Opens a client in a thread; `ask` calls it from any other one."""

    def __init__(self, actor: str | None, settings: dict[str, Any]) -> None:
        _refuse_green_threads()
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._resources = AsyncExitStack()
        self._calls: set[asyncio.Task[Any]] = set()
        self._gate = threading.Lock()
        self.is_closed = False
        self._opening: asyncio.Task[Any] | None = None
        self._thread = threading.Thread(target=self._serve, name="grns client", daemon=True)
        self._thread.start()
        self._opened = self._schedule(self._open(actor, settings))

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it: a thread does not survive a fork."""
        return os.getpid() == self._pid

    def ask(self, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Ask the client, and return its answer or raise its error.

        Raises:
            BackgroundClosedError: it was closed before it could ask.
        """
        client = self.client()
        context = contextvars.copy_context()  # of the caller: its trace, its attempt

        async def ask() -> Answer:
            return await question(client)

        async def ask_in_context() -> Answer:
            call = asyncio.create_task(ask(), context=context)
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            return await call

        return _answer(self._schedule(ask_in_context()))

    def client(self) -> Client:
        """Return the client once it is open; raise what opening it raised. All threads wait for the same."""
        try:
            return self._opened.result()
        except CancelledError:
            raise BackgroundClosedError from None

    def close(self) -> None:
        """Close the client and end its thread. Calls that are under way have 2 s to end."""
        if not self.is_ours:
            return
        with self._gate:
            if self.is_closed:
                return
            self.is_closed = True
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        if threading.current_thread() is not self._thread:  # a finalizer may run in any thread
            self._thread.join(2 * (_OPEN_SECONDS + _GRACE_SECONDS) + _CLOSE_SECONDS)

    def _schedule(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        with self._gate:
            if self.is_closed:
                work.close()
                raise BackgroundClosedError
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self, actor: str | None, settings: dict[str, Any]) -> Client:
        self._opening = asyncio.current_task()
        return await self._resources.enter_async_context(connect(actor=actor, **settings))

    async def _end(self) -> None:
        try:
            if self._opening is not None:
                await _end_all({self._opening}, _OPEN_SECONDS)
            await _end_all(self._calls, _GRACE_SECONDS)
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._resources.aclose()
        finally:
            self._loop.stop()

    def _serve(self) -> None:
        self._loop.run_forever()
        while unanswered := asyncio.all_tasks(self._loop):  # threads still wait
            for task in unanswered:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(unanswered))
        for _ in range(3):  # closed transports close their sockets in a later round
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


async def _end_all(tasks: set[asyncio.Task[Any]], grace: float) -> None:
    """Wait until all have ended. After the grace, in seconds, cancel the others and wait for them."""
    for _ in range(2):
        if running := {task for task in tasks if not task.done()}:
            _, late = await asyncio.wait(running, timeout=grace)
            for task in late:
                task.cancel()


def _refuse_green_threads() -> None:
    """Raise InvalidInputError where threads are not those of the system, which an event loop needs."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    is_green = gevent is not None and gevent.is_module_patched("threading")
    if is_green or (eventlet is not None and eventlet.is_monkey_patched("thread")):
        raise InvalidInputError(
            "green_threads",
            "gevent or eventlet has replaced the threads of this process, and grns.sync.Client needs one: run"
            " the application with threads, such as gunicorn --threads 8, or submit with connection=",
        )


def _answer(future: Future[Answer]) -> Answer:
    try:
        return future.result()
    except BaseException:  # Ctrl-C while it waits
        with suppress(RuntimeError):  # the loop has ended
            future.cancel()
        raise
