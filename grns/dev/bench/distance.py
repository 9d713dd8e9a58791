"""How far the servers are, and how long they take to write: what no code of ours can make shorter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from grns.dev.bench import measure
from grns.dev.bench.plan import Distance
from grns.dev.bench.show import BenchProgress, Step
from grns.errors import UnavailableError
from grns.model import subjects
from grns.model.duration import percentiles
from grns.model.task import random_uuid
from grns.nats import JetStream
from grns.nats.messages import Message
from grns.postgres.database import Database

_TRIPS, _WRITES = 100, 50
_TEXT = "x" * 200
_ECHO = f"nudge.bench.{subjects.VERSION}"
_STORED = subjects.message("evt.agent.bench.measured")
_ANSWER_SECONDS = 10.0

Trip = Callable[[], Awaitable[object]]


async def look(database: Database, transport: JetStream, show: BenchProgress) -> Distance:
    """Measure all four, one after the other, each answer awaited before the next question."""
    echo = await _echo(transport)
    with show.phase("how far the servers are", 2 * (_TRIPS + _WRITES)) as step:
        async with database.session() as session:
            postgres = await _middle(partial(measure.ping, session), _TRIPS, step, 0)
            commit = await _middle(partial(measure.commit, session, _TEXT), _WRITES, step, _TRIPS)
        nats = await _middle(echo, _TRIPS, step, _TRIPS + _WRITES)
        stored = await _middle(partial(_store, transport), _WRITES, step, 2 * _TRIPS + _WRITES)
    return Distance(postgres, commit, nats, stored)


async def _middle(trip: Trip, count: int, step: Step, before: int) -> float:
    """Return the median of so many trips, in seconds."""
    await trip()  # the first one also prepares
    took = []
    for number in range(count):
        began = time.perf_counter()
        await trip()
        took.append(time.perf_counter() - began)
        step(before + number)
    return percentiles(took).p50


async def _echo(transport: JetStream) -> Trip:
    """Return what sends a message to ourselves, through the broker's memory alone, and waits for it."""
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
                f"the broker passed no message on within {_ANSWER_SECONDS:.0f} s: may this user publish"
                f" and subscribe to other subjects than cmd.>, evt.> and dlq.>?"
            ) from error

    return echo


async def _store(transport: JetStream) -> None:
    """Have JetStream store a message."""
    await transport.publish(Message(_STORED, _TEXT.encode(), str(random_uuid()), {}))
