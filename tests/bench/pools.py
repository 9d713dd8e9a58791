"""Handlers for measuring."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grns

pool = grns.Pool("worker")


@pool.task("noop")
async def noop(task: grns.Context) -> None:
    """Do nothing."""


@pool.task("clock")
async def clock(task: grns.Context) -> float:
    """Return when this handler was started, in seconds of this machine's clock."""
    return time.time()


@pool.task("flaky", backoff=grns.Backoff(base_seconds=0.0))
async def flaky(task: grns.Context, payload: dict[str, Any]) -> None:
    """Fail at the first attempt, where the payload says so, and be tried again at once."""
    if task.attempt == 1 and payload.get("fails"):
        raise ConnectionError("the first attempt fails")


@pool.task("fan_out")
async def fan_out(task: grns.Context, payload: dict[str, Any]) -> int:
    """Submit so many tasks that do nothing, wait for them, and return how many succeeded."""
    done = await task.join(await task.fan_out("children", noop, [{}] * payload["tasks"]))
    return len(done)


@pool.task("steps")
async def steps(task: grns.Context, payload: dict[str, Any]) -> list[float]:
    """Take so many steps, and return how many seconds each took."""
    seconds = []
    for number in range(payload["steps"]):
        began = time.perf_counter()
        await task.step(f"step {number}", _nothing)
        seconds.append(time.perf_counter() - began)
    return seconds


@pool.task("teller")
async def teller(task: grns.Context, payload: dict[str, Any]) -> None:
    """Stream the time again and again."""
    for _ in range(payload["chunks"]):
        task.stream(f"{time.time()} ")
        await asyncio.sleep(payload["pause"])


async def _nothing() -> None:
    """Return nothing."""


@pool.task("sleeper")
async def sleeper(task: grns.Context) -> None:
    """Sleep for a day."""
    await task.sleep(86_400)


@pool.task("long")
async def long(task: grns.Context) -> None:
    """Run until the worker ends."""
    await asyncio.Event().wait()
