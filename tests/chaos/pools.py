"""The workers' handlers: each writes down what it does, outside of grns, before and after it does it."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import grns
from grns.errors import GrnsError
from tests.chaos.content import FILES, password_of, returned_file
from tests.chaos.follow_ups import FOLLOW_UP
from tests.chaos.journal import Journal
from tests.chaos.post import CREW, SENDS
from tests.chaos.steps import CLAIMED, SIGNAL, STEPS

pool = grns.Pool(os.environ.get("GRNS_CHAOS_AGENT_TYPE", "worker"))
_journal: Journal | None = None
_mails: Journal | None = None


def _note(what: str, task: grns.Context, **more: Any) -> None:
    global _journal
    if _journal is None:  # in the worker, and not already where the module is looked at
        _journal = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"effects-{os.getpid()}.jsonl")
    _journal.note(
        what, task=task.id, attempt=task.attempt, lease=str(task.lease_id), agent=task.agent_id,
        pid=os.getpid(), named=os.environ.get("GRNS_CHAOS_AGENT"), **more,
    )  # fmt: skip


@pool.task("steady", max_attempts=8, secret=["password"])
async def steady(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Take a little time, and fail as often as the submitter says."""
    return await _steady(task, payload)


async def _steady(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    _note("begin", task)
    try:
        await asyncio.sleep(random.expovariate(1 / payload["seconds"]) if payload["seconds"] else 0)
    except asyncio.CancelledError:
        _note("cancelled", task)
        raise
    number = payload["number"]
    if number % SENDS == 0:
        await _write(task, number)
    assert payload.get("password") in (None, password_of(number))
    file = {"file": await returned_file(task)} if number % FILES == 0 else {}
    if random.random() < payload.get("failing", 0.0):
        _note("failed", task)
        raise grns.Retry("drawn so", after=random.random())
    _note("end", task)
    return {"number": number, "attempt": task.attempt, **file}


async def _write(task: grns.Context, number: int) -> None:
    """Send mail to one of the crew, as this attempt."""
    global _mails
    if _mails is None:
        _mails = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"mails-{os.getpid()}.jsonl")
    to, new = CREW[number % len(CREW)], uuid4()
    _mails.note("mails", id=str(new), to=to)
    with suppress(GrnsError):  # it has lost its task, or Postgres is away: perhaps it was sent
        await task.client.mail.send("fact", {"number": number}, to=to, about=task.id, message_id=new)
        _mails.note("mailed", id=str(new))


@pool.task("limited", max_attempts=8)
async def limited(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Do what `steady` does, in little time: its tenant has one at a time."""
    return await _steady(task, {**payload, "seconds": min(0.05, payload["seconds"])})


@pool.task("thread", max_attempts=8)
def thread(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Take a little time in a thread, and look whether to go on."""
    _note("begin", task)
    end = time.monotonic() + payload["seconds"]
    while time.monotonic() < end:
        if task.should_stop:
            _note("cancelled", task)
            raise grns.Retry("told to end")
        time.sleep(0.05)
    _note("end", task)
    return {"number": payload["number"], "attempt": task.attempt}


@pool.task("hold", max_attempts=8)
async def hold(task: grns.Context, payload: dict[str, float]) -> None:
    """Hold on for exactly so long, the first time; whoever has to do it again is done at once."""
    _note("begin", task)
    try:
        await asyncio.sleep(payload["seconds"] if task.attempt == 1 else 0)
    except asyncio.CancelledError:
        _note("cancelled", task)
        raise
    _note("end", task)


@pool.task("ledger", max_attempts=8, on_success=FOLLOW_UP)
async def ledger(task: grns.Context, payload: dict[str, Any]) -> None:
    """Book something in the transaction that ends the task: exactly once, whatever happens."""
    _note("begin", task)
    async with task.transaction() as transaction:
        await transaction.connection.execute(
            "insert into chaos_ledger (task_id, attempt, number) values ($1, $2, $3)",
            task.id, task.attempt, payload["number"],
        )  # fmt: skip
        transaction.complete({"number": payload["number"], "attempt": task.attempt})
    _note("end", task)


@pool.task("stepwise", max_attempts=8)
async def stepwise(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Take steps, sleep, and wait for tasks, each of some tasks."""
    number = payload["number"]
    _note("begin", task)
    _note("checkpoint", task, found=task.last_checkpoint)
    task.checkpoint(task.attempt)
    try:
        for place, name in enumerate(STEPS[:-1]):
            task.progress(100 * place / len(STEPS), name)
            await task.step(name, _step, task, name, payload["seconds"] / 2)
        if number % 3 == 0:
            await task.sleep(2.1)
        if number % 5 == 0:
            with suppress(grns.WaitTimeoutError):
                assert await task.wait_for_signal(SIGNAL, timeout=3) == number
        if number % 7 == 0:
            approval = await task.approve("pay", title=f"pay {number}?", timeout=4, default=False)
            _note("approval", task, approved=approval.value)
        if number % 4 == 0:
            with suppress(grns.WaitTimeoutError):
                await task.wait_for_event(CLAIMED, {"task_id": task.id}, timeout=20)
        if number % 2:
            child = {"number": number, "seconds": 0.0, "parent": task.id}
            await task.join(await task.fan_out("children", steady, [child, child]), return_exceptions=True)
        await task.step(STEPS[-1], _step, task, STEPS[-1], 0.0)
    except asyncio.CancelledError:
        _note("cancelled", task)
        raise
    _note("end", task)
    return {"number": number, "attempt": task.attempt}


async def _step(task: grns.Context, name: str, seconds: float) -> str:
    _note("step", task, step=name)
    await asyncio.sleep(seconds)
    return name


@pool.task("doomed", max_attempts=2, on_failure=FOLLOW_UP)
async def doomed(task: grns.Context, payload: dict[str, Any]) -> None:
    """Fail for good, or until dead."""
    _note("begin", task)
    _note("failed", task)
    if payload["number"] % 2:
        raise grns.Fail("it cannot be done", error_class="impossible")
    raise grns.Retry("once more", after=0.1)


@pool.task(FOLLOW_UP, max_attempts=8)
async def followed(task: grns.Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Take note of an end."""
    _note("begin", task)
    _note("end", task)
    return {"attempt": task.attempt}
