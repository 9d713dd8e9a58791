"""How a task ends, as the pages say it, held against what handlers and Postgres make of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import grns
from grns.maintenance.reaper import reap
from grns.model.outcome import Claim
from grns.model.task import random_uuid
from grns.postgres.database import Database
from grns.worker.finishes import Finish, Finishes
from tests.site.page import text
from tests.support.harness import submit
from tests.support.store import claim, fall_due, lapse, row_of
from tests.worker.test_handlers import Runner, returning


async def _sleep(task: grns.Context) -> None:
    await asyncio.sleep(60)


# Each row of the table, by how it begins; None: the handler never ends.
_HANDLERS: dict[str, list[Callable[..., Any] | None]] = {
    "returns": [returning({"ok": True}), returning(None)],
    "raises `grns.Fail(…)`, an exception of `non_retryable`, or one that is not of `retryable`": [
        returning(grns.Fail("no"))
    ],
    "raises `grns.Retry(after=…)`": [returning(grns.Retry(after=9)), returning(grns.Retry())],
    "raises `grns.Snooze(seconds)`": [returning(grns.Snooze(9))],
    "raises anything else, or takes longer than `timeout`": [returning(ValueError("no")), _sleep],
    "returns a value that is not JSON or is too large": [returning({1, 2}), returning("x" * 300_000)],
    "is killed with its worker": [None],
}


def rows() -> dict[str, tuple[str, str]]:
    """Return the table of docs/pool.md: what the handler does, with attempts left and without."""
    part = text("pool.md").split("## How it ends")[1].split("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]
    return {
        first.strip(): (left.strip(), (left if last.strip() == "the same" else last).strip())
        for first, left, last in lines
    }


async def end(database: Database, owner: Claim, function: Callable[..., Any] | None) -> dict[str, Any]:
    """Run a handler for a claimed task, write what came of it, and return the task."""
    if function is None:
        await lapse(database, owner.id)
        await reap(database, 10, None)
    else:
        outcome = await Runner(function, timeout=0.05).run(owner)
        await Finishes(database, batch_limit=1).finish(Finish(owner, outcome, random_uuid()))
    return await row_of(database, owner.id)


def test_pool_page_table_has_a_handler_for_each_row() -> None:
    assert rows().keys() == _HANDLERS.keys()


@pytest.mark.parametrize("is_last", [False, True], ids=["attempts_left", "last_attempt"])
@pytest.mark.parametrize("row", list(_HANDLERS))
async def test_handler_end_gives_the_status_of_the_pool_page(
    shared: Database, row: str, *, is_last: bool
) -> None:
    """Language row 11: the page said that an unserializable result is retried; it is `failed` at once."""
    said = rows()[row][is_last]
    status, *error_class = re.findall(r"`(\w+)`", said.split(":")[0])
    for function in _HANDLERS[row]:
        owner = await claim(shared, (await submit(shared, max_attempts=1 if is_last else 2)).id)
        task = await end(shared, owner, function)
        assert task["status"] == status
        assert all(f'"class": "{one}"' in task["last_error"] for one in error_class)
        assert (task["status"] == "failed") == ("`failed`" in said)


@pytest.mark.parametrize("page", ["pool.md", "runbooks/retry-backlog-grows.md"])
async def test_retry_counts_as_an_attempt_as_the_pages_say(shared: Database, page: str) -> None:
    """Language row 12: `Retry` counts as an attempt, and the last one ends `dead`; the runbook advised it."""
    sentence = re.search(r"[^.|]*\b(?:each|one that ends with) `grns\.Retry`[^.]*\.", text(page))
    assert sentence
    assert "attempt" in sentence[0]
    assert "`dead`" in sentence[0]
    asked = re.search(r"grns\.Retry\(after=(\d+)\)", text(page))
    seconds = int(asked[1]) if asked else 9
    task_id = (await submit(shared, max_attempts=2)).id
    task = await end(shared, await claim(shared, task_id), returning(grns.Retry(after=seconds)))
    assert (task["next_attempt_at"] - task["updated_at"]).total_seconds() == seconds
    await fall_due(shared, task_id)
    task = await end(shared, await claim(shared, task_id), returning(grns.Retry(after=seconds)))
    assert (task["status"], task["attempt"], task["uncounted_attempts"]) == ("dead", 2, 0)
