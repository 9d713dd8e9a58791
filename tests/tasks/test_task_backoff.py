"""The backoff of one task: it goes before that of its handler, and after what a handler asks for."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import grns
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import InvalidInputError
from grns.maintenance.scheduler import promote
from grns.model.failure import failed
from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.worker.finishes import Finish, Finishes
from tests.support.api import Door, good, problem_of
from tests.support.harness import submit
from tests.support.store import claim, fall_due, fetch

SUBMIT = "select grns.submit_task('noop', '{}', 'worker', backoff => $1::text::jsonb) as id"
TEN_MINUTES = grns.Backoff(base_seconds=600, max_seconds=3000)


async def fail(database: Database, held: Claim, *, seconds: float = 1.0, is_usual: bool = True) -> float:
    """End an attempt with a retry; return in how many seconds the next one is due."""
    outcome = failed("noop", "E", "no", is_final=False, backoff_seconds=seconds, is_usual=is_usual)
    done = await Finishes(database, batch_limit=1).finish(Finish(held, outcome, uuid4()))
    assert done.status == "retry_wait"
    return await due_in(database, held.id)


async def due_in(database: Database, task_id: str) -> float:
    """Return in how many seconds a task is due."""
    (row,) = await fetch(
        database, "select next_attempt_at - updated_at as pause from grns.tasks where id = $1", task_id
    )
    return float(row["pause"].total_seconds())


async def test_a_task_waits_as_it_says_itself(client: Client, shared: Database) -> None:
    made = await client.submit("noop", {}, pool="worker", backoff=TEN_MINUTES, max_attempts=10)
    assert (await made.get()).backoff == {
        "base_seconds": 600.0, "max_seconds": 3000.0, "curve": "exponential",
    }  # fmt: skip
    for usual in (600, 1200, 2400, 3000, 3000):
        pause = await fail(shared, await claim(shared, made.id))
        assert 0.8 * usual <= pause <= 1.2 * usual
        await fall_due(shared, made.id)


async def test_what_a_handler_asks_for_goes_before_it(client: Client, shared: Database) -> None:
    made = await client.submit("noop", {}, pool="worker", backoff=TEN_MINUTES)
    assert await fail(shared, await claim(shared, made.id), seconds=7, is_usual=False) == pytest.approx(7)


async def test_without_it_a_task_waits_as_its_handler_says(shared: Database) -> None:
    made = await submit(shared)
    assert await fail(shared, await claim(shared, made.id), seconds=7) == pytest.approx(7)


async def test_from_sql(shared: Database) -> None:
    said = json.dumps({"base_seconds": 100, "max_seconds": 1000, "curve": "polynomial"})
    (row,) = await fetch(shared, SUBMIT, said)
    assert 80 <= await fail(shared, await claim(shared, row["id"])) <= 120
    below = said.replace("100", "-1", 1)
    for wrong in ('{"base_seconds": 1}', "[]", below):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="backoff"):
            await fetch(shared, SUBMIT, wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        grns.Backoff(curve=lambda attempts: attempts), {"base_seconds": -1}, {"curve": "steep"}, {"after": 1},
        {"max_seconds": 1e9}, 5,
    ],
    ids=["a function", "a negative base", "a curve", "a field", "too long", "a number"],
)  # fmt: skip
async def test_what_is_no_backoff_of_a_task(client: Client, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="backoff"):
        await client.submit("noop", {}, pool="worker", backoff=wrong)


async def test_over_http(door: Door, shared: Database) -> None:
    async with door.visitor(await door.key("submit", "read", "work", workspace="default")) as visitor:
        body = {"task_type": "noop", "agent_type": "worker", "backoff": {"base_seconds": 600}}
        made = good(await visitor.post(f"{PREFIX}/tasks", json=body), [201])
        shown = good(await visitor.get(f"{PREFIX}/tasks/{made['id']}"))
        assert shown["backoff"] == {"base_seconds": 600.0, "max_seconds": 900.0, "curve": "exponential"}
        for said, least, most in (
            ({"backoff_seconds": 5}, 480, 720),
            ({"retry_after_seconds": 5}, 5, 5),
        ):
            claimed = good(await visitor.post(f"{PREFIX}/queue/claim", json={"task_types": ["noop"]}))
            failure = {"token": claimed["token"], "error": {"class": "E", "message": "no"}, **said}
            good(await visitor.post(f"{PREFIX}/queue/fail", json=failure))
            assert least <= round(await due_in(shared, made["id"]), 3) <= most
            await fall_due(shared, made["id"])
            await promote(shared, 10, None)
        wrong = await visitor.post(f"{PREFIX}/tasks", json={**body, "backoff": {"base_seconds": "soon"}})
        assert problem_of(wrong, 400) == "bad_submission"
