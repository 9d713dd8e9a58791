"""The eager client for synchronous code."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from grns.client.client import Client as AsyncClient
from grns.model.task import Task
from grns.sync import Client, TaskHandle
from grns.tasks.workflow_plan import PlannedWorkflow
from grns.testing.eager import EagerClient
from grns.worker.handler import Handler
from grns.worker.pool import Pool

Answer = TypeVar("Answer")


class CallingThread(Executor):
    """Runs what another thread submits in the thread that calls `serve`."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Ask the serving thread for a call."""
        future: Future[Any] = Future()
        self._work.put((future, partial(function, *arguments, **named)))
        return future

    def serve(self, until: Future[Any]) -> None:
        """Run what is submitted until a future is done."""
        until.add_done_callback(lambda _: self._work.put(None))
        while (work := self._work.get()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


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

    def _submit_workflow(
        self, plan: PlannedWorkflow, tasks: Sequence[Any], connection: Any
    ) -> list[TaskHandle[Any]]:
        return super()._submit_workflow(plan, tasks, None)

    def run_waiting(self) -> None:
        """Run the tasks that wait for their time: see `EagerClient.run_waiting`."""
        self.ask(lambda _: self._eager.run_waiting())

    def assert_submitted(self, task: Handler[Any, Any] | str, payload: Any = None, **fields: Any) -> Task:
        """Return the first task of a type with this payload: see `EagerClient.assert_submitted`."""
        return self._eager.assert_submitted(task, payload, **fields)

    def ask(self, question: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
        """Ask the eager client, in a loop of its own. Plain handlers run in the calling thread.

        So they have the caller's database connection, as Django's ORM keeps one per thread.
        """
        outer, caller = self._eager.threads, CallingThread()

        async def ask() -> Answer:
            return await question(self._eager)

        self._eager.threads = caller
        try:
            with ThreadPoolExecutor(1) as thread:  # the caller may run in a loop
                answer = thread.submit(contextvars.copy_context().run, asyncio.run, ask())
                caller.serve(until=answer)
                return answer.result()
        finally:
            self._eager.threads = outer


@contextmanager
def eager_sync(*pools: Pool, runs: bool = True) -> Iterator[SyncEagerClient]:
    """Return the client of `grns.testing.eager` for synchronous code: see there.

    Example:
        with grns.testing.eager_sync() as client:
            place_order(client, url="https://example.org")
            client.assert_submitted(fetch_page, Page(url="https://example.org"))
    """
    yield SyncEagerClient(*pools, runs=runs)
