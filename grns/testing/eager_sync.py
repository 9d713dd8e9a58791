"""The eager client for synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from grns.client.client import Client as AsyncClient
from grns.model.task import Task
from grns.sync import Client, TaskHandle
from grns.testing.eager import EagerClient
from grns.worker.handler import Handler
from grns.worker.pool import Pool

Answer = TypeVar("Answer")


class SyncEagerClient(Client):
    """A `grns.sync.Client` whose tasks run when they are submitted: see `EagerClient`.

    It ignores `connection=`: a task runs at once, whatever becomes of the transaction.
    """

    def __init__(self, *pools: Pool, runs: bool = True) -> None:
        super().__init__()
        self._eager = EagerClient(*pools, runs=runs)

    @property
    def tasks(self) -> dict[str, Task]:
        """The submitted tasks by id, in order."""
        return self._eager.tasks

    def submit(
        self, task: Any, payload: Any = None, *, connection: Any = None, **options: Any
    ) -> TaskHandle[Any]:
        """Create a task and run it."""
        return super().submit(task, payload, **options)

    def submit_many(self, submissions: Any, *, connection: Any = None) -> Any:
        """Create tasks and run them."""
        return super().submit_many(submissions)

    def run_waiting(self) -> None:
        """Run the tasks that wait for their time: see `EagerClient.run_waiting`."""
        self.ask(lambda _: self._eager.run_waiting())

    def assert_submitted(self, task: Handler[Any, Any] | str, payload: Any = None, **fields: Any) -> Task:
        """Return the first task of a type with this payload: see `EagerClient.assert_submitted`."""
        return self._eager.assert_submitted(task, payload, **fields)

    def ask(self, question: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
        """Ask the eager client, in a loop of its own."""

        async def ask() -> Answer:
            return await question(self._eager)

        with ThreadPoolExecutor(1) as thread:  # the caller may run in a loop
            return thread.submit(contextvars.copy_context().run, asyncio.run, ask()).result()


@contextmanager
def eager_sync(*pools: Pool, runs: bool = True) -> Iterator[SyncEagerClient]:
    """Return the client of `grns.testing.eager` for synchronous code: see there.

    Example:
        with grns.testing.eager_sync() as client:
            place_order(client, url="https://example.org")
            client.assert_submitted(fetch_page, Page(url="https://example.org"))
    """
    yield SyncEagerClient(*pools, runs=runs)
