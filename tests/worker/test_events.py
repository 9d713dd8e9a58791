"""Events that handlers wait for: none is missed, whether it happens before the wait, with it or after it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

import grns
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import InvalidInputError
from grns.maintenance.event_matcher import EventMatcher
from grns.maintenance.scheduler import promote
from grns.postgres.database import Database
from tests.support.aggregators import begin_here, count_all
from tests.support.api import OURS, THEIRS, Door, good, problem_of, serving
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import eventually, submit
from tests.support.store import (
    WORKER,
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    is_waiting_for_lock,
    log_of,
    row_of,
    stranger,
)

POOL = grns.Pool("worker")
WAITS: list[tuple[str, dict[str, Any] | None, float | None]] = []
DONE = "evt.task.completed"


@POOL.task("noop")
async def follow(ctx: grns.Context) -> list[Any]:
    found: list[Any] = []
    for kind, where, timeout in WAITS:
        try:
            event = await ctx.wait_for_event(kind, where, timeout=timeout)
        except grns.WaitTimeoutError:
            found.append("timed out")
        else:
            assert event.kind == kind
            found.append(event.payload.get("task_id"))
    return found


@pytest.fixture
async def attempts(shared: Database, client: Client) -> Any:
    WAITS[:] = [(DONE, None, None)]
    await begin_here(shared)
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def match(database: Database, *, rows: int = 10_000, times: int = 1000) -> int:
    """Count the log, search it, and return how many events were sent."""
    await count_all(database)
    sent = 0
    for _ in range(times):
        (settled,) = await fetch(database, "select low from grns.count_cursor")
        (row,) = await database.run("deliver_events", settled["low"], rows)
        sent += row["sent"]
        if not row["has_more"]:
            break
    return sent


async def ended(database: Database, **fields: Any) -> str:
    """Let a task succeed."""
    made = await submit(database, **fields)
    handled = {fields.get("task_type", "noop"): None}
    who = replace(WORKER, workspace=fields.get("workspace", "default"), handled=handled)
    await finish(database, await claim(database, made.id, who=who))
    return made.id


async def result_of(database: Database, task_id: str) -> Any:
    return (await row_of(database, task_id))["result"]


async def test_a_task_waits_without_a_slot_until_it_happens(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    assert (await row_of(shared, task.id))["waits_for"] == "signal"
    assert await match(shared) == 0
    other = await ended(shared)
    assert await match(shared) == 1
    row = (await log_of(shared, task.id))[-2]
    assert (row["kind"], json.loads(row["payload"])["reason"]) == ("evt.task.queued", "signaled")
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{other}"]'
    assert await match(shared) == 0
    assert await fetch(shared, "select from grns.event_waits") == []


async def test_what_happened_before_the_wait_counts_from_the_creation_on(
    attempts: Attempts, shared: Database
) -> None:
    await ended(shared)
    task = await submit(shared)
    first = await ended(shared)
    await ended(shared)
    assert await attempts.run(task.id) == "waiting"
    assert await match(shared) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{first}"]'


async def test_the_next_wait_gets_the_next_event(attempts: Attempts, shared: Database) -> None:
    WAITS[:] = [(DONE, None, None), (DONE, {"attempt": 1}, None), (DONE, None, None)]
    task = await submit(shared)
    ids = [await ended(shared) for _ in range(3)]
    for _ in range(3):
        assert await attempts.run(task.id) == "waiting"
        assert await match(shared) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{ids[0]}", "{ids[0]}", "{ids[1]}"]'


async def test_only_what_was_asked_for(attempts: Attempts, shared: Database) -> None:
    WAITS[:] = [(DONE, {"task_type": "import"}, None)]
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    await ended(shared)
    await ended(shared, task_type="import", workspace=THEIRS)
    await cancel(shared, (await submit(shared, task_type="import")).id)
    assert await match(shared) == 0
    mine = await ended(shared, task_type="import")
    assert await match(shared) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{mine}"]'


async def test_a_long_log_is_searched_in_parts(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    await cancel(shared, (await submit(shared)).id)
    for _ in range(20):
        await cancel(shared, (await submit(shared)).id)
    last = await ended(shared)
    assert await attempts.run(task.id) == "waiting"
    assert await match(shared, rows=3) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{last}"]'


async def test_a_time_out_is_an_answer(attempts: Attempts, shared: Database) -> None:
    WAITS[:] = [(DONE, None, 30.0)]
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fall_due(shared, task.id)
    await promote(shared, 10, None)
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == '["timed out"]'
    assert await fetch(shared, "select from grns.event_waits") == []
    assert await match(shared) == 0
    await ended(shared)
    assert await match(shared) == 0
    assert await fetch(shared, "select from grns.event_waits") == []


async def test_a_task_that_is_locked_gets_it_later(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    mine = await ended(shared)
    async with stranger(shared) as held:
        await held.execute("select from grns.tasks where id = $1 for no key update", task.id)
        assert await match(shared) == 0
        await ended(shared)
        assert await match(shared) == 0
        await held.execute("rollback")
    assert await match(shared) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{mine}"]'


async def test_an_attempt_that_dies_after_the_event_has_come_finds_it(
    attempts: Attempts, shared: Database
) -> None:
    """The signal is there, and the next attempt asks again: it is sent once."""
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    mine = await ended(shared)
    assert await match(shared) == 1
    taken = await claim(shared, task.id, who=attempts.who)
    await shared.run(
        "await_event", taken.id, taken.attempt, taken.lease_id, "default", f"event {DONE}", DONE, "{}", 0
    )
    assert await match(shared) == 0
    await fetch(
        shared, "update grns.tasks set lease_until = now() - interval '1 minute' where id = $1", task.id
    )
    assert [row["name"] for row in await fetch(shared, "select name from grns.signals")] == [
        f"event event {DONE}"
    ]
    assert mine


async def test_a_task_that_was_cancelled_waits_for_nothing(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    await cancel(shared, task.id)
    await ended(shared)
    assert await match(shared) == 0
    assert await fetch(shared, "select from grns.event_waits") == []


async def test_a_wait_that_comes_while_the_log_is_searched_is_searched_too(
    attempts: Attempts, shared: Database
) -> None:
    """The matcher has looked at the waits, and has not written yet how far they are searched."""
    first, second = [await submit(shared) for _ in range(2)]
    mine = await ended(shared)
    assert await attempts.run(first.id) == "waiting"
    await count_all(shared)
    (settled,) = await fetch(shared, "select low from grns.count_cursor")
    async with stranger(shared) as held:
        await held.execute("select from grns.event_waits for update")
        searching = asyncio.create_task(shared.run("deliver_events", settled["low"], 10_000))
        await eventually(lambda: is_waiting_for_lock(shared))
        assert await attempts.run(second.id) == "waiting"
        await held.execute("rollback")
        await searching
    await match(shared)
    for task in (first, second):
        assert await attempts.run(task.id) == "succeeded"
        assert await result_of(shared, task.id) == f'["{mine}"]'


async def test_an_old_wait_and_a_locked_task_hold_up_no_other(attempts: Attempts, shared: Database) -> None:
    old, locked, new = [await submit(shared) for _ in range(3)]
    for _ in range(30):
        await cancel(shared, (await submit(shared)).id)
    for task in (locked, new):
        assert await attempts.run(task.id) == "waiting"
    await match(shared)
    mine = await ended(shared)
    async with stranger(shared) as held:
        await held.execute("select from grns.tasks where id = $1 for no key update", locked.id)
        assert await attempts.run(old.id) == "waiting"
        assert await match(shared, rows=5, times=3) >= 1
        assert (await row_of(shared, new.id))["status"] == "queued"
        for _ in range(30):
            await cancel(shared, (await submit(shared)).id)
        await match(shared, rows=5, times=50)
        assert (await row_of(shared, old.id))["status"] == "queued"
        await held.execute("rollback")
    await match(shared, rows=5)
    for task in (old, locked, new):
        assert await attempts.run(task.id) == "succeeded"
        assert await result_of(shared, task.id) == f'["{mine}"]'


async def test_waits_for_one_task_each_are_found_by_it(attempts: Attempts, shared: Database) -> None:
    ids = [(await submit(shared)).id for _ in range(3)]
    WAITS[:] = [(DONE, {"task_id": ids[1]}, None)]
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    for one in ids:
        await finish(shared, await claim(shared, one))
    assert await match(shared) == 1
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == f'["{ids[1]}"]'


async def test_two_matchers_send_an_event_once(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    await ended(shared)
    await count_all(shared)
    matchers = [EventMatcher(database=shared, emit=attempts.emitted.append) for _ in range(4)]
    await asyncio.gather(*(one.tick() for one in matchers for _ in range(5)))
    (row,) = await fetch(shared, "select count(*) as n from grns.signals")
    assert row["n"] == 1


@pytest.mark.parametrize("kind", ["evt.task.*", "cmd.task.execute", "evt", "", 5])
async def test_what_is_no_kind(attempts: Attempts, shared: Database, kind: Any) -> None:
    WAITS[:] = [(kind, None, None)]
    task = await submit(shared)
    assert await attempts.run(task.id) == "failed"
    assert "exact kind" in str((await row_of(shared, task.id))["last_error"])


async def test_an_http_worker_waits_for_an_event(door: Door, shared: Database) -> None:
    await begin_here(shared)
    made = await submit(shared)
    async with (
        serving(door.context, door.api) as server,
        grns.AgentClient(
            server.url, key=await door.key("work", "read", workspace="default"), task_types=["noop"]
        ) as worker,
    ):
        for status in ("waiting", "succeeded"):
            async with await worker.next_task(20) as task:  # type: ignore[union-attr]
                assert task.id == made.id
                task.result = (await task.wait_for_event(DONE)).payload["task_id"]
            assert task.status == status
            if status == "waiting":
                mine = await ended(shared)
                assert await match(shared) == 1
    assert await result_of(shared, made.id) == f'"{mine}"'


async def test_http_workers_wait_too_with_a_key_that_may_read(door: Door, shared: Database) -> None:
    await begin_here(shared)
    made = await submit(shared, workspace=OURS)

    async def asked(visitor: httpx2.AsyncClient, path: str, **said: Any) -> httpx2.Response:
        return await visitor.post(f"{PREFIX}/queue/{path}", json=said)

    async with door.visitor(await door.key("work", "read")) as worker:
        claimed = good(await asked(worker, "claim", task_types=["noop"], wait_seconds=0))
        said = {"token": claimed["token"], "step": "import", "event": {"kind": DONE}}
        async with door.visitor(await door.key("work")) as other:
            assert problem_of(await asked(other, "signal", **said), 403) == "forbidden"
        assert good(await asked(worker, "signal", **said)) == {"value": None}
        waits = {"token": claimed["token"], "step": "import", "event": True}
        assert good(await asked(worker, "suspend", **waits)) == {"status": "waiting"}
        await ended(shared)
        mine = await ended(shared, workspace=OURS)
        assert await match(shared) == 1
        claimed = good(await asked(worker, "claim", task_types=["noop"], wait_seconds=0))
        assert claimed["task"]["id"] == made.id
        found = good(await asked(worker, "signal", **{**said, "token": claimed["token"]}))
        assert found["value"]["value"]["payload"]["task_id"] == mine
    await door.context.agent_claims.close()


async def test_a_test_passes_events() -> None:
    async def report(ctx: grns.Context) -> str:
        return str((await ctx.wait_for_event(DONE, {"task_type": "import"})).payload["task_id"])

    handler = grns.Pool("reports").task(report)
    assert await grns.testing.run(handler, signals={DONE: {"task_id": "a"}}) == "a"
    with pytest.raises(InvalidInputError):
        await grns.testing.run(handler)
