"""The log of a task: what handlers log is kept while the attempt owns the task, once, and bounded."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.diagnose.task_log import MOST_LINES, read_task_log
from grns.errors import LeaseLostError
from grns.maintenance.reaper import reap
from grns.model.json import Limits
from grns.model.log_line import LONGEST_MESSAGE, Line
from grns.postgres.database import Database
from grns.worker.progress import AttemptProgress, ProgressStore, Report, record
from grns.worker.task_logger import fields_of, message_of
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import claim, fall_due, fetch, lapse

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
FAILS: list[str] = []


@POOL.task("noop")
async def chatty(ctx: grns.Context) -> None:
    log = ctx.log.bind(order=17)
    log.debug("too small")
    log.info("begins", page=1)
    if FAILS:
        try:
            raise ConnectionError(FAILS.pop())
        except ConnectionError:
            log.exception("no answer")
            raise
    log.warning("%s of %s", 3, 4)


@pytest.fixture
async def attempts(shared: Database) -> AsyncIterator[Attempts]:
    FAILS.clear()
    with attempts_of(POOL, shared) as attempts:
        yield attempts


async def said(shared: Database, task_id: str, **options: Any) -> list[tuple[str, str, int | None, str]]:
    """Return the log of a task, without times and fields."""
    lines = await read_task_log(shared, task_id, workspace="default", **options)
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    return [(line.level, line.source, line.attempt, line.message) for line in lines]


async def test_what_handlers_log_stands_between_what_became_of_the_task(
    attempts: Attempts, shared: Database
) -> None:
    FAILS.append("away")
    task = await submit(shared)
    assert await attempts.run(task.id) == "retry_wait"
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "succeeded"
    found = await said(shared, task.id)
    assert [(level, source, attempt) for level, source, attempt, _ in found] == [
        ("INFO", "grns", 0), ("INFO", "grns", 1),
        ("INFO", "handler", 1), ("ERROR", "handler", 1), ("WARN", "grns", 1),
        *[("INFO", "grns", 1)] * (len(found) - 9),
        ("INFO", "grns", 2), ("INFO", "handler", 2), ("WARN", "handler", 2), ("INFO", "grns", 2),
    ]  # fmt: skip
    assert [one[3] for one in found if one[1] == "handler"] == ["begins", "no answer", "begins", "3 of 4"]
    lines = await read_task_log(shared, task.id, workspace="default", level="ERROR")
    assert [(line.message, line.fields) for line in lines] == [
        ("no answer", {"order": 17, "error": "ConnectionError: away"})
    ]
    assert [one[3] for one in await said(shared, task.id, limit=1)] == [found[-1][3]]


async def test_a_client_reads_the_log(attempts: Attempts, client: Client, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert await client.handle(task.id).logs() == await client.logs(task.id)
    assert await client.logs(task.id) == await read_task_log(shared, task.id, workspace="default")
    (line,) = await client.logs(task.id, level="WARN", limit=1)
    assert (line.source, line.level, line.message, line.fields) == (
        "handler", "WARN", "3 of 4", {"order": 17},
    )  # fmt: skip
    assert await client.logs(task.id, level="CRITICAL") == []
    with pytest.raises(grns.NotFoundError, match="there is no task gr-nothing"):
        await client.logs("gr-nothing")
    with pytest.raises(grns.InvalidInputError, match="level is one of DEBUG, INFO, WARN"):
        await client.logs(task.id, level="warning")  # type: ignore[arg-type]
    with pytest.raises(grns.InvalidInputError, match="limit is 1 to 1000"):
        await client.logs(task.id, limit=0)


async def test_an_attempt_that_has_lost_its_task_logs_nothing(shared: Database) -> None:
    task = await submit(shared)
    old = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    progress = AttemptProgress(old, Limits(), store)
    progress.log(20, "mine", None)
    await progress.flush()
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    progress.log(20, "not mine any more", None)
    with pytest.raises(LeaseLostError):
        await progress.flush()
    assert [one[3] for one in await said(shared, task.id) if one[1] == "handler"] == ["mine"]


async def test_a_line_that_is_written_twice_is_there_once(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)
    lines = tuple(Line(number, 0.0, 20, f"line {number}", None) for number in range(1, 4))
    for sent in (lines[:2], lines):
        (answer,) = await record(shared, [(taken, Report(lines=sent))])
        assert answer.verdict == "recorded"
    assert [one[3] for one in await said(shared, taken.id) if one[1] == "handler"] == [
        "line 1",
        "line 2",
        "line 3",
    ]
    assert await fetch(shared, "select from grns.progress") == [], "a line is no report of progress"


async def test_what_is_written_of_an_attempt_is_bounded_whoever_numbers_it(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)

    async def write(level: int, first: int) -> None:
        lines = tuple(Line(number, 0.0, level, "x", None) for number in range(first, first + 500))
        await record(shared, [(taken, Report(lines=lines))])

    for level, most in ((20, 1000), (40, 2000)):
        for first in range(0, 3000, 500):
            await write(level, 10_000 * level + first)
        (row,) = await fetch(shared, "select count(*) as lines from grns.task_lines")
        assert row["lines"] == most


async def test_a_task_keeps_the_lines_of_its_latest_ten_attempts(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)
    line = (Line(1, 0.0, 20, "x", None),)
    await record(shared, [(taken, Report(lines=line))])
    await fetch(shared, "update grns.task_lines set attempt = attempt - 10")
    await record(shared, [(taken, Report(lines=line))])
    assert [row["attempt"] for row in await fetch(shared, "select attempt from grns.task_lines")] == [1]


class Unreadable:
    """A value without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


ODD: dict[str, Any] = {
    "nul": "a\x00b", "surrogate": "a\ud800b", "huge": "x" * 50_000, "type": object, "bytes": b"\xff",
    "nan": float("nan"), "number": 10**30, "set": {1}, "deep": [[[{"x": None}]]], "moment": datetime.now(UTC),
    "many": list(range(3_000)), "unreadable": Unreadable(),
}  # fmt: skip


@POOL.task("odd")
async def odd(ctx: grns.Context) -> None:
    for name, value in ODD.items():
        ctx.log.info(name, value=value)
        ctx.log.info(value)
    ctx.log.info("%d of %s", "no number", 3)
    ctx.log.info("%(shop)s", {"shop": "mine"})
    ctx.log.log(logging.WARNING + 5, "between")
    await ctx.log.ainfo("awaited")
    ctx.log.bind(a=1, b=2).unbind("a").info("unbound")
    ctx.log.bind(a=1).new(c=3).info("new")


async def test_whatever_is_logged_is_kept_and_does_not_fail_the_attempt(
    attempts: Attempts, shared: Database
) -> None:
    task = await submit(shared, task_type="odd")
    assert await attempts.run(task.id) == "succeeded"
    lines = [
        line
        for line in await read_task_log(shared, task.id, workspace="default", limit=MOST_LINES)
        if line.source == "handler"
    ]
    assert len(lines) == 2 * len(ODD) + 6
    assert all(len(line.message) <= LONGEST_MESSAGE for line in lines)
    fields = {line.message: line.fields or {} for line in lines if line.message in ODD}
    assert fields["nul"] == {"value": "a\\x00b"}
    assert fields["surrogate"] == {"value": "a\\ud800b"}
    assert fields["huge"] == {"value": "x" * 200}
    assert fields["deep"] == {"value": [[[{"x": None}]]]}
    assert [(line.level, line.message) for line in lines[-6:-2]] == [
        ("INFO", "%d of %s ('no number', 3)"), ("INFO", "mine"), ("WARN", "between"), ("INFO", "awaited"),
    ]  # fmt: skip
    assert [line.fields for line in lines[-2:]] == [{"b": 2}, {"c": 3}]


def test_what_has_no_text_is_named() -> None:
    assert message_of(Unreadable()) == "(the message cannot be read: RuntimeError)"
    assert fields_of({"x": Unreadable()}) == '{"x":"(its value cannot be read: RuntimeError)"}'
    assert fields_of({f"f{number}": "y" * 200 for number in range(200)}) == (
        '{"left_out":"the fields have more than 4096 bytes"}'
    )


@POOL.task("loud")
async def loud(ctx: grns.Context) -> None:
    for _ in range(600):
        ctx.log.info("fast")
    await ctx._own_progress().flush()
    ctx.log.info("again")
    for _ in range(3):
        for number in range(400):
            ctx.log.info("more", number=number)
        await ctx._own_progress().flush()
    ctx.log.error("fails")


async def test_what_an_attempt_logs_too_much_is_left_out_and_counted_but_not_its_errors(
    attempts: Attempts, shared: Database
) -> None:
    task = await submit(shared, task_type="loud")
    assert await attempts.run(task.id) == "succeeded"
    lines = await read_task_log(shared, task.id, workspace="default", limit=MOST_LINES)
    lines = [line for line in lines if line.source == "handler"]
    messages = [line.message for line in lines]
    assert "again (100 lines before it are left out)" in messages
    assert messages[-2:] == [
        "more (of the lines after it, only those from WARN on are kept)",
        f"fails ({1200 - 499} lines before it are left out)",
    ]
    (row,) = await fetch(shared, "select count(*) as lines from grns.task_lines")
    assert row["lines"] == 1001


async def test_it_goes_with_its_task(attempts: Attempts, client: Client, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert await fetch(shared, "select from grns.task_lines")
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '9 days'")
    await shared.run("delete_tasks", "", 100, 3600.0, 3600.0, None, False)
    assert await fetch(shared, "select from grns.task_lines") == []
