"""Runs the handlers of a pool, or plain functions, over HTTP."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from grns.errors import InvalidInputError, Snooze, UnavailableError
from grns.model.blob import BlobRules, with_documents
from grns.model.json import ANY_SIZE, Limits, dumps, jsonable, loads_stored
from grns.worker.step_function import call_step

if TYPE_CHECKING:
    from grns.agent.client import AgentClient
    from grns.agent.task import AgentTask
    from grns.worker.handler import Handler
    from grns.worker.pool import Pool

_VALUES = Limits()
_AWAY_SECONDS = 5.0


class _Slot:
    """Where one handler at a time runs. A plain one has a thread, which nothing can end but itself."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._running: asyncio.Future[Any] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def in_thread(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call a function in a thread. Who waits for it may be cancelled; the thread goes on."""
        call = partial(copy_context().run, function, *arguments, **named)
        self._running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        self._running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._running)

    @property
    def is_busy(self) -> bool:
        """Say whether a thread runs."""
        return self._running is not None and not self._running.done()

    def close_later(self, resources: AsyncExitStack) -> None:
        """Close what a handler uses once its thread has ended."""
        running = self._running

        async def close() -> None:
            if running is not None:
                await asyncio.wait({running})
            await resources.aclose()

        closing = asyncio.create_task(close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def free(self, stopping: asyncio.Event) -> None:
        """Wait until the thread has ended, or nothing more is to run."""
        if self._running is None or self._running.done():
            return
        ending = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({self._running, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()


class PoolRunner:
    """Claims tasks, and calls their handlers."""

    def __init__(self, client: AgentClient, pool: Pool | Mapping[str, Callable[..., Any]]) -> None:
        self._client = client
        self._pool = None if isinstance(pool, Mapping) else pool
        self._handlers: Mapping[str, Any] = pool if isinstance(pool, Mapping) else pool.handlers
        for name, handler in self._handlers.items():
            if getattr(handler, "secret_result_paths", ()):
                raise InvalidInputError(
                    "bad_handler", f"the result of {name} has secrets, which a worker over HTTP cannot seal"
                )
        self._states: dict[Pool, Any] = {}

    async def run(self, concurrency: int) -> None:
        """Run tasks until the client is stopped; then leave the lifespans."""
        async with AsyncExitStack() as resources:
            for pool in () if self._pool is None else self._pool.pools():
                if pool.lifespan is not None:
                    self._states[pool] = await resources.enter_async_context(pool.lifespan(pool))
                for function in pool.hooks.startup:
                    await _called(function)
                for function in pool.hooks.shutdown:
                    resources.push_async_callback(_called, function)
            # Not those of the loop, in which it looks up names.
            threads = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="grns-handler")
            resources.callback(threads.shutdown, wait=False)
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, concurrency)):
                    group.create_task(self._run_tasks(_Slot(threads)))

    async def _run_tasks(self, slot: _Slot) -> None:
        async with aclosing(self._client.tasks()) as tasks:
            async for task in tasks:
                async with task:
                    handler = self._handlers[task.task_type]
                    if hasattr(handler, "call_signature"):
                        task.result = await self._call(handler, task, slot)
                    else:
                        task.result = jsonable(await _call_function(handler, task, slot))
                await slot.free(self._client._stopping)

    async def _call(self, handler: Handler[Any, Any], task: AgentTask, slot: _Slot) -> Any:
        """Call a handler as a worker does: with its payload, its dependencies and its time-out."""
        from grns.worker import judgement  # it needs pydantic, as handlers do

        def judge(error: BaseException) -> dict[str, Any]:
            error_class, _ = judgement.describe(error, handler)
            return {
                "retry": not judgement.is_final(error, handler), "error_class": error_class,
                "backoff": judgement.backoff_seconds(handler, task.counted_attempt),
            }  # fmt: skip

        task.judge = judge
        lineage = handler.pool.lineage()
        task.state = next((self._states[pool] for pool in lineage if pool in self._states), None)
        rules = BlobRules()
        try:
            task.payload = await with_documents(task.payload, self._client.get_blob, rules.most_bytes)
        except UnavailableError as error:  # the handler has not begun
            raise Snooze(_AWAY_SECONDS) from error
        payload = judgement.payload_of(handler, dumps(task.payload, ANY_SIZE))
        signature, limit = handler.call_signature, handler.timeout_seconds
        raised: BaseException | None = None
        try:
            async with asyncio.timeout(limit) as deadline, AsyncExitStack() as resources:
                arguments = signature.arguments(task, payload)  # type: ignore[arg-type]
                arguments |= await signature.resolve(task, resources)  # type: ignore[arg-type]
                try:
                    value = await call_step(handler.function, (), arguments, in_thread=slot.in_thread)
                except BaseException as error:
                    raised = error
                    if slot.is_busy:  # its thread still uses them
                        slot.close_later(resources.pop_all())
                    raise
            if raised is not None:  # a dependency has caught it: the attempt has failed all the same
                raise raised
        except TimeoutError as error:
            if deadline.expired() and not str(error):
                raise TimeoutError(f"no end after {limit} s") from None
            raise
        except BaseException as error:
            raise judgement.alone(error, handler) from None
        return loads_stored(judgement.result_text(handler, value, _VALUES, rules.document))


async def _call_function(function: Callable[..., Any], task: AgentTask, slot: _Slot) -> Any:
    """Call a function with the payload, and with the task if it takes two arguments."""
    takes = len(inspect.signature(function).parameters)
    return await call_step(function, (task.payload, task)[:takes], {}, in_thread=slot.in_thread)


async def _called(function: Callable[[], Any]) -> None:
    answer = function()
    if inspect.isawaitable(answer):
        await answer
