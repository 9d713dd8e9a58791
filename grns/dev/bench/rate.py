"""How much grns does: each figure by itself, one after the other."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from grns.client.client import Client
from grns.dev.bench import measure
from grns.dev.bench.plan import Plan
from grns.dev.bench.pool import AGENT_TYPE, CLOCK, NOOP
from grns.dev.bench.show import BenchProgress, Step
from grns.dev.bench.stage import BenchStage
from grns.errors import GrnsError, WaitTimeoutError
from grns.model import subjects
from grns.model.duration import Percentiles, percentiles
from grns.nats import JetStream
from grns.postgres.database import Database

_PART = 20_000  # of what is submitted at once: it is held in memory
_LOOK_SECONDS = 0.02
_STUCK_SECONDS = 60.0
# Of one task: it was queued; claimed and completed; all of them.
_QUEUED, _WORKED, _ALL = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement works with."""

    plan: Plan
    client: Client
    database: Database
    transport: JetStream
    stage: BenchStage
    show: BenchProgress


async def in_bulk(bench: Bench) -> float:
    """Return tasks/s of submitting many at a time; nobody runs them yet."""
    with bench.show.phase("submit, in bulk", bench.plan.tasks) as step:
        began = time.perf_counter()
        await _submit(bench, step)
        return bench.plan.tasks / (time.perf_counter() - began)


async def one_by_one(bench: Bench) -> float:
    """Return tasks/s of submitting one at a time, each awaited before the next; nobody runs them yet."""
    plan = bench.plan
    with bench.show.phase("submit, one by one", plan.single) as step:
        began = time.perf_counter()
        for number in range(plan.single):
            await bench.client.submit(NOOP, plan.payload, agent_type=AGENT_TYPE)
            step(number)
        return plan.single / (time.perf_counter() - began)


async def drain(bench: Bench) -> float:
    """Return tasks/s of a worker that finds all these tasks queued: from the first claim to the last end."""
    waiting = bench.plan.tasks + bench.plan.single
    published = await _published(bench)
    with bench.show.phase("publish what was submitted", waiting) as step:
        bench.stage.start_server()
        await _until_published(bench, published, waiting, _QUEUED, step)
    with bench.show.phase("drain", waiting) as step:
        bench.stage.start_worker()
        await _until_published(bench, published + waiting * _QUEUED, waiting, _WORKED, step)
    pace = await _ended(bench)
    return pace.ended / max(pace.seconds, 1e-9)


async def whole_way(bench: Bench) -> float:
    """Return tasks/s from the first submit until all have ended and the broker has every event of them."""
    tasks = bench.plan.tasks
    published = await _published(bench)
    with bench.show.phase("the whole way", tasks) as step:
        began = time.perf_counter()
        await _submit(bench)
        await _until_published(bench, published, tasks, _ALL, step)
        seconds = time.perf_counter() - began
    await _ended(bench)
    return tasks / seconds


async def start(bench: Bench) -> Percentiles:
    """Return the seconds from submit to the handler's start, one task at a time on an idle system."""
    waits = []
    with bench.show.phase("submit → start, idle", bench.plan.samples) as step:
        for number in range(bench.plan.samples):
            began = time.monotonic()
            submitted = await bench.client.submit(CLOCK, bench.plan.payload, agent_type=AGENT_TYPE)
            task = await bench.client.wait(submitted.id, timeout_seconds=_STUCK_SECONDS)
            if not isinstance(task.result, float):
                raise GrnsError(f"the task {task.id} ended {task.status} and returned no time")
            waits.append(task.result - began)
            step(number)
    return percentiles(waits)


async def _submit(bench: Bench, step: Step = lambda _done: None) -> None:
    plan = bench.plan
    task = {"task_type": NOOP, "agent_type": AGENT_TYPE, "payload": plan.payload}
    for first in range(0, plan.tasks, _PART):
        last = min(first + _PART, plan.tasks)
        await bench.client.submit_many(task for _ in range(first, last))
        step(last)


async def _published(bench: Bench) -> int:
    """Return how many events the broker has, of all that ever were in this place."""
    return (await bench.transport.state(subjects.EVT_STREAM)).last_seq


async def _until_published(bench: Bench, before: int, tasks: int, each: int, step: Step) -> None:
    """Wait until the broker has so many more events than `before` as these tasks have, `each`."""
    seen, moved_at = before, time.monotonic()
    while seen < before + tasks * each:
        bench.stage.check()
        await asyncio.sleep(_LOOK_SECONDS)
        now = await _published(bench)
        if now > seen:
            seen, moved_at = now, time.monotonic()
        elif time.monotonic() - moved_at > _STUCK_SECONDS:
            raise WaitTimeoutError(
                f"nothing moves any more: of {tasks * each} events {seen - before} have been published"
            )
        step((seen - before) // each)


async def _ended(bench: Bench) -> measure.TaskRate:
    """Return the pace of all tasks, once none is open: one that was run twice has more events than one."""
    while (pace := await measure.pace(bench.database)).open:
        bench.stage.check()
        await asyncio.sleep(_LOOK_SECONDS)
    return pace
