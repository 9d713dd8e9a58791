"""Measurements: latencies of the servers, then the throughput of grns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from grns.client.client import Client
from grns.dev.bench.plan import Distance, Plan
from grns.dev.bench.pool import AGENT_TYPE, CLOCK, NOOP
from grns.dev.bench.workspace import BenchProcesses, BenchProgress, Step
from grns.errors import GrnsError, UnavailableError, WaitTimeoutError
from grns.model import subjects
from grns.model.duration import Percentiles, percentiles
from grns.model.task import random_uuid
from grns.nats import JetStream
from grns.nats.messages import Message
from grns.postgres.database import Database, Session


@dataclass(frozen=True, slots=True)
class TaskRate:
    """Counts of open and ended tasks, and the seconds from the first claim to the last end."""

    open: int
    ended: int
    seconds: float


async def _ping(session: Session) -> None:
    """Send a statement that does nothing."""
    await session.run("ping_server")


async def _commit(session: Session, text: str) -> None:
    """Commit a transaction with one text."""
    await session.run("commit_text", text)


async def _task_rate(database: Database) -> TaskRate:
    """Return the rate of all tasks; it reads all of them."""
    return TaskRate(*(await database.run("read_pace"))[0])


_TRIPS, _WRITES = 100, 50
_TEXT = "x" * 200
_ECHO = f"nudge.bench.{subjects.VERSION}"
_STORED = subjects.message("evt.agent.bench.measured")
_ANSWER_SECONDS = 10.0

Trip = Callable[[], Awaitable[object]]


async def latencies(database: Database, transport: JetStream, show: BenchProgress) -> Distance:
    """Measure all four, one request at a time."""
    echo = await _echo(transport)
    with show.phase("latency of the servers", 2 * (_TRIPS + _WRITES)) as step:
        async with database.session() as session:
            postgres = await _median_seconds(partial(_ping, session), _TRIPS, step, 0)
            commit = await _median_seconds(partial(_commit, session, _TEXT), _WRITES, step, _TRIPS)
        nats = await _median_seconds(echo, _TRIPS, step, _TRIPS + _WRITES)
        stored = await _median_seconds(partial(_store, transport), _WRITES, step, 2 * _TRIPS + _WRITES)
    return Distance(postgres, commit, nats, stored)


async def _median_seconds(trip: Trip, count: int, step: Step, before: int) -> float:
    """Return the median duration of `count` round trips."""
    await trip()  # the first one also prepares
    durations = []
    for number in range(count):
        began = time.perf_counter()
        await trip()
        durations.append(time.perf_counter() - began)
        step(before + number)
    return percentiles(durations).p50


async def _echo(transport: JetStream) -> Trip:
    """Return a function that sends a core NATS message to this process and waits for it."""
    heard = asyncio.Event()
    await transport.on_nudge(_ECHO, heard.set)

    async def echo() -> None:
        heard.clear()
        await transport.nudge(_ECHO)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await heard.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"the broker delivered no message within {_ANSWER_SECONDS:.0f} s: permit this user to"
                f" publish and subscribe to subjects besides cmd.>, evt.> and dlq.>"
            ) from error

    return echo


async def _store(transport: JetStream) -> None:
    """Store a message in JetStream."""
    await transport.publish(Message(_STORED, _TEXT.encode(), str(random_uuid()), {}))


_BATCH = 20_000  # tasks submitted at once, which are held in memory
_CHECK_SECONDS = 0.02
_STUCK_SECONDS = 60.0
# Events of one task: when it is queued; when it runs; together.
_QUEUED, _WORKED, _ALL = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Bench:
    """Connections, processes and progress that each measurement uses."""

    plan: Plan
    client: Client
    database: Database
    transport: JetStream
    processes: BenchProcesses
    show: BenchProgress


async def in_bulk(bench: Bench) -> float:
    """Return tasks/s of bulk submission, without a worker."""
    with bench.show.phase("submit, in bulk", bench.plan.tasks) as step:
        began = time.perf_counter()
        await _submit(bench, step)
        return bench.plan.tasks / (time.perf_counter() - began)


async def one_by_one(bench: Bench) -> float:
    """Return tasks/s of submission one at a time, without a worker."""
    plan = bench.plan
    with bench.show.phase("submit, one by one", plan.single) as step:
        began = time.perf_counter()
        for number in range(plan.single):
            await bench.client.submit(NOOP, plan.payload, pool=AGENT_TYPE)
            step(number)
        return plan.single / (time.perf_counter() - began)


async def drain(bench: Bench) -> float:
    """Return tasks/s of a worker that starts with a full queue, from the first claim to the last end."""
    waiting = bench.plan.tasks + bench.plan.single
    published = await _published(bench)
    with bench.show.phase("publish", waiting) as step:
        bench.processes.start_server()
        await _until_published(bench, published, waiting, _QUEUED, step)
    with bench.show.phase("drain", waiting) as step:
        bench.processes.start_worker()
        await _until_published(bench, published + waiting * _QUEUED, waiting, _WORKED, step)
    rate = await _ended(bench)
    return rate.ended / max(rate.seconds, 1e-9)


async def end_to_end(bench: Bench) -> float:
    """Return tasks/s from the first submission until the broker has every event of all tasks."""
    tasks = bench.plan.tasks
    published = await _published(bench)
    with bench.show.phase("end to end", tasks) as step:
        began = time.perf_counter()
        await _submit(bench)
        await _until_published(bench, published, tasks, _ALL, step)
        seconds = time.perf_counter() - began
    await _ended(bench)
    return tasks / seconds


async def start(bench: Bench) -> Percentiles:
    """Return the seconds from submission to the handler's start, one task at a time on an idle system."""
    waits = []
    with bench.show.phase("submit → start, idle", bench.plan.samples) as step:
        for number in range(bench.plan.samples):
            began = time.monotonic()
            submitted = await bench.client.submit(CLOCK, bench.plan.payload, pool=AGENT_TYPE)
            task = await bench.client.wait(submitted.id, timeout=_STUCK_SECONDS)
            if not isinstance(task.result, float):
                raise GrnsError(f"the task {task.id} ended {task.status} and returned no time")
            waits.append(task.result - began)
            step(number)
    return percentiles(waits)


async def _submit(bench: Bench, step: Step = lambda _done: None) -> None:
    plan = bench.plan
    task = {"task": NOOP, "pool": AGENT_TYPE, "payload": plan.payload}
    for first in range(0, plan.tasks, _BATCH):
        last = min(first + _BATCH, plan.tasks)
        await bench.client.submit_many(task for _ in range(first, last))
        step(last)


async def _published(bench: Bench) -> int:
    """Return the number of events published to this workspace so far."""
    return (await bench.transport.state(subjects.EVT_STREAM)).last_seq


async def _until_published(bench: Bench, before: int, tasks: int, each: int, step: Step) -> None:
    """Wait until the broker has `each` more events per task than `before`."""
    published, moved_at = before, time.monotonic()
    while published < before + tasks * each:
        bench.processes.check()
        await asyncio.sleep(_CHECK_SECONDS)
        now = await _published(bench)
        if now > published:
            published, moved_at = now, time.monotonic()
        elif time.monotonic() - moved_at > _STUCK_SECONDS:
            raise WaitTimeoutError(
                f"no progress for {_STUCK_SECONDS:.0f} s: {published - before} of {tasks * each}"
                " events are published"
            )
        step((published - before) // each)


async def _ended(bench: Bench) -> TaskRate:
    """Wait until no task is open (a task run twice has more events), and return the rate of all."""
    while (rate := await _task_rate(bench.database)).open:
        bench.processes.check()
        await asyncio.sleep(_CHECK_SECONDS)
    return rate
