"""Handlers for tests: each writes what it does into a journal outside of grns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from typing import Any

import grns

pool = grns.Pool(os.environ.get("GRNS_TEST_AGENT_TYPE", "worker"))


def note(word: str, task: grns.Context) -> None:
    """Append one line to the journal, in one write."""
    line = f"{word} {task.id} {task.attempt}\n"
    with open(os.environ["GRNS_TEST_JOURNAL"], "a") as journal:
        journal.write(line)
    if word == "begin" and os.environ.get("GRNS_TEST_DIES_IN") == task.task_type:
        os.kill(os.getpid(), signal.SIGKILL)


@pool.task("noop")
async def noop(task: grns.Context) -> None:
    """Do nothing."""


@pool.task("effect")
async def effect(task: grns.Context, payload: dict[str, float]) -> dict[str, int]:
    """Note the begin and the end of an async handler that takes its time."""
    note("begin", task)
    try:
        await asyncio.sleep(payload.get("seconds", 0.0))
    except asyncio.CancelledError:
        note("cancelled", task)
        raise
    note("end", task)
    return {"attempt": task.attempt}


@pool.task("thread")
def thread(task: grns.Context, payload: dict[str, float]) -> str:
    """Note the begin and the end of a handler in a thread, which looks whether it should go on."""
    note("begin", task)
    deadline = time.monotonic() + payload.get("seconds", 0.0)
    while time.monotonic() < deadline:
        if task.should_stop:
            note("told", task)
            return "told"
        time.sleep(0.01)
    note("end", task)
    return "done"


@pool.task("until")
async def until(task: grns.Context, payload: dict[str, str]) -> None:
    """Run until a file is there."""
    note("begin", task)
    try:
        while not os.path.exists(payload["file"]):  # noqa: ASYNC110, ASYNC240 - a test makes it
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note("cancelled", task)
        raise
    note("end", task)


@pool.task("until_in_thread")
def until_in_thread(task: grns.Context, payload: dict[str, str]) -> None:
    """Run in a thread until a file is there, or the attempt should end."""
    note("begin", task)
    while not os.path.exists(payload["file"]):
        if task.should_stop:
            note("told", task)
            return
        time.sleep(0.02)
    note("end", task)


def sleep_on(seconds: float) -> None:
    """Block the thread in a call that lets go of the interpreter."""
    time.sleep(seconds)


def burn(seconds: float) -> None:
    """Block with a busy loop in Python."""
    os.nice(10)  # the machine is also somebody else's
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass


def hold_gil(seconds: float) -> None:
    """Block the whole interpreter, a second or so at a time: a backtracking match never lets go of it."""
    os.nice(10)
    deadline = time.monotonic() + seconds
    length = 16
    while time.monotonic() < deadline:
        began = time.monotonic()
        re.match(r"(a+)+$", "a" * length + "b")
        if time.monotonic() - began < 0.5:
            length += 1


@pool.task("in_loops_thread")
async def in_loops_thread(task: grns.Context, payload: dict[str, float]) -> None:
    """Wait for one of the loop's own threads, which nobody can end."""
    note("begin", task)
    await asyncio.to_thread(time.sleep, payload["seconds"])


@pool.task("stubborn")
async def stubborn(task: grns.Context, payload: dict[str, float]) -> None:
    """Go on, however often it is cancelled."""
    note("begin", task)
    deadline = time.monotonic() + payload["seconds"]
    while time.monotonic() < deadline:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)


@pool.task("fork")
async def fork(task: grns.Context) -> None:
    """Leave a child behind that holds all that was open, as libraries that fork do."""
    if not (child := os.fork()):
        time.sleep(20)  # noqa: ASYNC251 - a process without a loop
        os._exit(0)
    note(f"child {child}", task)
    await asyncio.sleep(20)


BLOCKERS = {"sleep_on": sleep_on, "burn": burn, "hold_gil": hold_gil}


@pool.task("block_loop")
async def block_loop(task: grns.Context, payload: dict[str, Any]) -> None:
    """Block the event loop."""
    note("begin", task)
    BLOCKERS[payload.get("how", "sleep_on")](payload["seconds"])
    note("end", task)


@pool.task("stall", stall_timeout=5)
async def stall(task: grns.Context, payload: dict[str, Any]) -> None:
    """Block the event loop in the first attempt, and report nothing."""
    note("begin", task)
    if task.attempt == 1:
        BLOCKERS[payload["how"]](payload["seconds"])
    note("end", task)


@pool.task("block_thread")
def block_thread(task: grns.Context, payload: dict[str, Any]) -> None:
    """Block a thread, and perhaps the others with it."""
    note("begin", task)
    BLOCKERS[payload["how"]](payload["seconds"])
    note("end", task)


@pool.task("fail_once", backoff=grns.Backoff(base_seconds=0.05))
async def fail_once(task: grns.Context) -> int:
    """Fail at the first attempt."""
    note("begin", task)
    if task.attempt == 1:
        raise ValueError("the first attempt fails")
    return task.attempt


@pool.task("pay", backoff=grns.Backoff(base_seconds=0.05))
async def pay(task: grns.Context, payload: dict[str, float]) -> None:
    """Write into the users' own table in the transaction that ends the task."""
    note("begin", task)
    async with task.transaction() as transaction:
        await transaction.connection.execute(
            "insert into payments (task_id, attempt) values ($1, $2)", task.id, task.attempt
        )
        transaction.complete({"paid": True})
        await asyncio.sleep(payload.get("seconds", 0.0))
