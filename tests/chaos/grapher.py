"""A submitter of tasks that need each other: one by one, as workflows, and by one function of the database.

`python -m tests.chaos.grapher PER_SECOND`, until SIGTERM. PER_SECOND counts tasks. What nobody knows to be
there is tried again under the same keys, but not a workflow: that would be one more.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

import grns
from grns.errors import GrnsError, OutcomeUnknownError, UnavailableError
from grns.model.submission import Outcome
from tests.chaos.journal import Journal

_KINDS = ("steady", "steady", "steady", "thread", "ledger", "doomed")
_OUTCOMES: tuple[Outcome, ...] = ("success", "success", "success", "end", "failure")
_MOST_TASKS, _WIDE = 8, 30
_MEAN_TASKS = 5.0
_MOST_UNDER_WAY = 30
_PATIENCE_SECONDS, _PAUSE_SECONDS = 10.0, 0.5
_MOST_TRIES = 4
_CANCELLED, _CHANGED = 0.02, 0.15
_OLD = 50
_LIFE = f"{os.getpid()}.{time.time_ns():x}"
_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


@dataclass(slots=True)
class GraphTask:
    """A task of a graph: what it needs, by places in the graph or ids of tasks that exist."""

    key: str
    task_type: str
    payload: dict[str, Any]
    agent_type: str
    needs: dict[int | str, Outcome] = field(default_factory=dict)
    required: int | None = None


def draw(number: int, old: Sequence[str]) -> list[GraphTask]:
    """Return a graph: small and of any shape, or wide. Some of its tasks need one of `old`."""
    if random.random() < 0.03:
        tasks = [_task(number, place) for place in range(_WIDE + 2)]
        for middle in range(1, _WIDE + 1):
            tasks[middle].needs[0] = "success"
            tasks[_WIDE + 1].needs[middle] = "end"
        return tasks
    tasks = [_task(number, place) for place in range(random.randint(2, _MOST_TASKS))]
    for place, task in enumerate(tasks[1:], 1):
        count = min(place, random.choice((0, 1, 1, 2, 3)))
        task.needs.update({before: random.choice(_OUTCOMES) for before in random.sample(range(place), count)})
        if old and random.random() < 0.05:
            task.needs[random.choice(old)] = random.choice(_OUTCOMES)
        if len(task.needs) > 1 and random.random() < 0.3:
            task.required = random.randint(1, len(task.needs))
    return tasks


def _task(number: int, place: int) -> GraphTask:
    payload = {"number": number, "seconds": random.choice((0.0, 0.0, 0.05, 0.5))}
    if random.random() < 0.1:
        payload["failing"] = 0.5
    agent_type = random.choice(("worker", "scout"))
    return GraphTask(f"graph-{_LIFE}-{number}-{place}", random.choice(_KINDS), payload, agent_type)


class Grapher:
    """Submits graphs at a steady rate, and cancels a few of their tasks."""

    def __init__(self, client: grns.Client, per_second: float) -> None:
        self._client = client
        self._per_second = per_second / _MEAN_TASKS
        self._journal = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"submits-{os.getpid()}.jsonl")
        self._stopping = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._old: deque[str] = deque(maxlen=_OLD)
        self._flows: dict[str, str] = {}

    async def run(self) -> None:
        """Submit until SIGTERM."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._stopping.set)
        number = 0
        while not self._stopping.is_set():
            await asyncio.sleep(random.expovariate(self._per_second))
            if len(self._under_way) < _MOST_UNDER_WAY:
                number += 1
                way = random.choice((self._one_by_one, self._as_workflow, self._as_batch, self._in_sql))
                task = asyncio.create_task(self._submit(way, draw(number, self._old)))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        await asyncio.gather(*self._under_way)

    async def _submit(
        self, way: Callable[[list[GraphTask]], Awaitable[list[str]]], graph: list[GraphTask]
    ) -> None:
        ids = await way(graph)
        self._old.extend(ids)
        if graph[0].key in self._flows and ids and random.random() < _CHANGED:
            await self._change(self._flows[graph[0].key], ids)
        for task, task_id in zip(graph, ids, strict=False):
            needs = {ids[n] if isinstance(n, int) else n: outcome for n, outcome in task.needs.items()}
            self._journal.note("needs", task=task_id, needs=needs, required=task.required)
        for task_id in ids:
            if random.random() < _CANCELLED:
                await self._cancel(task_id)

    async def _try(
        self, tasks: Sequence[GraphTask], make: Callable[[], Awaitable[list[str]]]
    ) -> list[str] | None:
        """Try once; returns the ids, none where it was refused, None where nobody knows."""
        for task in tasks:
            self._journal.note("try", key=task.key, type=task.task_type, number=task.payload["number"])
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                ids = await make()
        except (OutcomeUnknownError, TimeoutError) as error:
            self._note(tasks, "unknown", repr(error))
            return None
        except GrnsError as error:
            self._note(tasks, "refused", repr(error))
            return []
        except Exception as error:
            self._note(tasks, "crash", repr(error))
            return []
        for task, task_id in zip(tasks, ids, strict=True):
            self._journal.note("ok", key=task.key, task=task_id)
        return ids

    def _note(self, tasks: Sequence[GraphTask], what: str, error: str) -> None:
        for task in tasks:
            self._journal.note(what, key=task.key, error=error[:500])

    async def _again(self, tasks: Sequence[GraphTask], make: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """Try until somebody knows, but not for ever."""
        for _ in range(_MOST_TRIES):
            if (ids := await self._try(tasks, make)) is not None:
                return ids
            await asyncio.sleep(_PAUSE_SECONDS)
        return []

    async def _one_by_one(self, graph: list[GraphTask]) -> list[str]:
        """Submit each task once those that it needs are there: they may have ended."""
        ids: list[str] = []
        for task in graph:
            made = await self._again([task], partial(self._one, task, ids))
            if not made:
                break
            ids += made
            await asyncio.sleep(random.choice((0.0, 0.0, 0.1)))
        return ids

    async def _one(self, task: GraphTask, ids: list[str]) -> list[str]:
        needs = [
            grns.after(ids[need] if isinstance(need, int) else need, outcome)
            for need, outcome in task.needs.items()
        ]
        handle = await self._client.submit(
            task.task_type, task.payload, pool=task.agent_type, idempotency_key=task.key, needs=needs,
            required=task.required,
        )  # fmt: skip
        return [handle.id]

    async def _as_workflow(self, graph: list[GraphTask]) -> list[str]:
        async def make() -> list[str]:
            flow = self._client.workflow(graph[0].key)
            made: list[Any] = []
            for task in graph:
                needs = [
                    grns.after(made[need] if isinstance(need, int) else need, outcome)
                    for need, outcome in task.needs.items()
                ]
                made.append(
                    flow.task(
                        task.task_type, task.payload, pool=task.agent_type, idempotency_key=task.key,
                        needs=needs, required=task.required,
                    )
                )  # fmt: skip
            await flow.submit()
            self._flows[graph[0].key] = flow.id
            return [one.id for one in made]

        return await self._try(graph, make) or []

    async def _as_batch(self, graph: list[GraphTask]) -> list[str]:
        """Add the tasks to an open workflow, each once those that it needs are there, and seal it."""
        flow = self._client.workflow(graph[0].key, is_open=True)
        if not await self._ask(flow.submit()):
            return []
        run, ids = self._client.workflow_handle(flow.id), list[str]()
        while part := self._next_part(graph, len(ids)):
            made = await self._again(part, partial(self._add, run, part, ids))
            if not made:
                break
            ids += made
            await asyncio.sleep(random.choice((0.0, 0.0, 0.1)))
        await self._ask(run.seal())  # or whoever ends the storm does
        self._flows[graph[0].key] = flow.id
        return ids

    def _next_part(self, graph: list[GraphTask], done: int) -> list[GraphTask]:
        """Return the next few tasks that need nothing but those before them."""
        end = done + 1
        most = random.randint(1, 4)
        while end < len(graph) and end - done < most:
            if any(isinstance(need, int) and need >= done for need in graph[end].needs):
                break
            end += 1
        return graph[done:end]

    async def _add(self, run: grns.WorkflowHandle, part: list[GraphTask], ids: list[str]) -> list[str]:
        made = await run.submit_many(
            {
                "task": task.task_type, "payload": task.payload, "pool": task.agent_type,
                "idempotency_key": task.key, "required": task.required, "name": task.key,
                "needs": [
                    grns.after(ids[need] if isinstance(need, int) else need, outcome)
                    for need, outcome in task.needs.items()
                ],
            }
            for task in part
        )  # fmt: skip
        return [one.id for one in made]

    async def _in_sql(self, graph: list[GraphTask]) -> list[str]:
        document = json.dumps([
            {
                "name": str(place), "task_type": task.task_type, "payload": task.payload,
                "agent_type": task.agent_type, "idempotency_key": task.key, "required": task.required,
                "needs": [{"task": str(need), "outcome": outcome} for need, outcome in task.needs.items()],
            }
            for place, task in enumerate(graph)
        ])  # fmt: skip

        async def make() -> list[str]:
            try:
                connection = await asyncpg.connect(os.environ["GRNS_DATABASE_URL"], timeout=3)
            except _AWAY as error:
                raise UnavailableError(str(error)) from error
            try:
                rows = await connection.fetch("select task_id from grns.submit_graph($1)", document)
            except _AWAY as error:
                raise OutcomeUnknownError(str(error)) from error
            finally:
                connection.terminate()
            return [row["task_id"] for row in rows]

        return await self._again(graph, make)

    async def _change(self, workflow_id: str, ids: Sequence[str]) -> None:
        """Pause a workflow and resume it, or cancel its tasks and run them again."""
        await asyncio.sleep(random.random())
        if random.random() < 0.5:
            await self._ask(self._client.pause_workflow(workflow_id, reason="storm"))
            await asyncio.sleep(random.random() * 3)
            await self._ask(self._client.resume_workflow(workflow_id))
            return
        for task_id in ids:
            self._journal.note("cancel", task=task_id)
        await self._ask(self._client.cancel_workflow(workflow_id))
        await asyncio.sleep(random.random() * 5)
        if random.random() < 0.5:
            await self._ask(self._client.redrive_workflow(workflow_id))

    async def _ask(self, asked: Awaitable[Any]) -> bool:
        """Ask once; whoever ends the storm resumes what is paused still. Returns whether it was answered."""
        with suppress(GrnsError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await asked
                return True
        return False

    async def _cancel(self, task_id: str) -> None:
        await asyncio.sleep(random.random() * 2)
        self._journal.note("cancel", task=task_id)
        try:
            self._journal.note("answered", task=task_id, answer=await self._client.cancel(task_id))
        except (OutcomeUnknownError, UnavailableError) as error:
            self._journal.note("cancel_unanswered", task=task_id, error=repr(error)[:200])
        except Exception as error:
            self._journal.note("crash", task=task_id, error=repr(error)[:500])


async def main(per_second: float) -> None:
    """Connect, however long that takes, and submit."""
    async with AsyncExitStack() as resources:
        while True:
            try:
                client = await resources.enter_async_context(grns.connect())
                break
            except GrnsError:
                await asyncio.sleep(0.2)
        await Grapher(client, per_second).run()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
