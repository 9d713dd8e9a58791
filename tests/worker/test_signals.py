"""Signals: each is taken once, in order, whether it comes before the wait, with it or after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.maintenance.scheduler import promote
from grns.postgres.database import Database
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import cancel, claim, fetch, finish, kinds_of, log_of, row_of

POOL = grns.Pool("worker")
TIMEOUT: list[float | None] = [None]


@POOL.task("noop")
async def approve(payload: dict[str, Any], ctx: grns.Context) -> list[Any]:
    found = []
    for name in payload.get("names", ["approved"]):
        try:
            found.append(await ctx.wait_for_signal(name, timeout=TIMEOUT[0]))
        except grns.WaitTimeoutError:
            found.append("timed out")
    return found


@pytest.fixture
def attempts(shared: Database, client: Client) -> Iterator[Attempts]:
    TIMEOUT[0] = None
    with attempts_of(POOL, shared, client) as attempts:
        yield attempts


async def result_of(database: Database, task_id: str) -> str:
    return str((await row_of(database, task_id))["result"])


async def test_a_task_waits_without_a_slot_until_its_signal_comes(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    row = await row_of(shared, task.id)
    assert (row["waits_for"], row["next_attempt_at"], row["uncounted_attempts"]) == ("signal", None, 1)
    assert await client.signal(task.id, "other", 1) == "kept"
    assert (await row_of(shared, task.id))["status"] == "waiting"
    assert await client.signal(task.id, "approved", {"by": "ann"}) == "woken"
    assert [row["kind"] for row in (await log_of(shared, task.id))[-3:]] == [
        "evt.task.signaled", "evt.task.queued", "cmd.task.execute",
    ]  # fmt: skip
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == '[{"by": "ann"}]'


async def test_a_signal_may_come_before_it_is_asked_for(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared)
    assert await client.signal(task.id, "approved", 1) == "kept"
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == "[1]"


async def test_signals_of_one_name_are_taken_in_order(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, payload={"names": ["a", "b", "a", "a"]})
    for name, value in (("a", 1), ("a", 2), ("b", 3)):
        assert await client.signal(task.id, name, value) == "kept"
    assert await attempts.run(task.id) == "waiting"
    assert await client.signal(task.id, "a", None) == "woken"
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == "[1, 3, 2, null]"


async def test_a_signal_that_is_sent_again_does_nothing(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared, payload={"names": ["a", "a"]})
    signal_id = uuid4()
    assert await client.signal(task.id, "a", 1, signal_id=signal_id) == "kept"
    assert await client.signal(task.id, "a", 1, signal_id=signal_id) == "repeated"
    assert await attempts.run(task.id) == "waiting"
    assert await client.signal(task.id, "a", 1, signal_id=signal_id) == "repeated"
    assert (await row_of(shared, task.id))["status"] == "waiting"


async def test_what_comes_while_the_task_begins_to_wait(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    """The signal is committed after the handler has looked, and before its task waits."""
    task = await submit(shared)
    asked = attempts.executor.finishes._database

    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(asked, name)

        async def run(self, name: str, *arguments: Any) -> Any:
            if name == "suspend":
                assert await client.signal(task.id, "approved", 1) == "kept"
            return await asked.run(name, *arguments)

    attempts.executor.finishes._database = Late()  # type: ignore[assignment]
    assert await attempts.run(task.id) == "waiting"
    await promote(shared, 10, None)
    assert (await row_of(shared, task.id))["status"] == "queued"
    assert await attempts.run(task.id) == "succeeded"


async def test_the_time_out_is_recorded(attempts: Attempts, client: Client, shared: Database) -> None:
    TIMEOUT[0] = 3600.0
    task = await submit(shared, payload={"names": ["a", "a"]})
    assert await attempts.run(task.id) == "waiting"
    due = (await row_of(shared, task.id))["next_attempt_at"]
    assert due is not None
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    await promote(shared, 10, None)
    assert await attempts.run(task.id) == "waiting", "too early: it waits on"
    assert (await row_of(shared, task.id))["next_attempt_at"] == due
    await fetch(shared, "update grns.signal_waits set until = now()")
    await fetch(shared, "update grns.tasks set next_attempt_at = now()")
    await promote(shared, 10, None)
    assert await attempts.run(task.id) == "waiting", "for the second one"
    assert await client.signal(task.id, "a", "late") == "woken"
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == '["timed out", "late"]'


async def test_signal_and_time_out_at_once_are_one_of_both(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    TIMEOUT[0] = 0.0
    for _ in range(10):
        task = await submit(shared)
        assert await attempts.run(task.id) == "waiting"
        answers = await asyncio.gather(client.signal(task.id, "approved", 1), promote(shared, 10, None))
        assert answers[0] in ("woken", "kept")
        assert await attempts.run(task.id) == "succeeded"
        assert await result_of(shared, task.id) in ("[1]", '["timed out"]')
        steps = await fetch(shared, f"select from grns.steps where task_id = '{task.id}'")
        assert len(steps) == 1


async def test_a_paused_task_takes_its_signal_when_it_is_resumed(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared)
    TIMEOUT[0] = 3600.0
    assert await attempts.run(task.id) == "waiting"
    assert await client.pause_task(task.id) == "paused"
    assert await client.signal(task.id, "approved", 1) == "kept"
    assert await client.resume_task(task.id) == "resumed"
    assert await attempts.run(task.id) == "succeeded"


async def test_a_signal_in_a_transaction_of_the_user(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    async with shared.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert await client.signal(task.id, "approved", 1, connection=connection) == "woken"
        await transaction.rollback()
        assert (await row_of(shared, task.id))["status"] == "waiting"
        async with connection.transaction():
            assert await client.signal(task.id, "approved", 2, connection=connection) == "woken"
    assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == "[2]"


async def test_a_task_under_limits_waits_for_room_after_its_signal(
    attempts: Attempts, client: Client, shared: Database
) -> None:
    await client.limits.put("one", pool="worker", max=1)
    task = await submit(shared)
    await fetch(shared, "update grns.tasks set status = 'queued', waits_for = null, queued_at = now()")
    assert await attempts.run(task.id) == "waiting"
    assert await client.signal(task.id, "approved", 1) == "woken"
    row = await row_of(shared, task.id)
    assert (row["status"], row["waits_for"]) == ("waiting", "limit")


async def test_what_takes_no_signal(client: Client, shared: Database) -> None:
    with pytest.raises(NotFoundError):
        await client.signal("gr-nothing", "approved")
    task = await submit(shared)
    for name, value in (("", 1), ("a b", 1), ("x" * 65, 1), ("a", "x" * 70_000)):
        with pytest.raises(InvalidInputError):
            await client.signal(task.id, name, value)
    await finish(shared, await claim(shared, task.id))
    with pytest.raises(ConflictError, match="succeeded"):
        await client.signal(task.id, "approved")
    other = await submit(shared)
    await fetch(
        shared,
        "insert into grns.signals (id, workspace, task_id, name, value)"
        f" select gen_random_uuid(), 'default', '{other.id}', 'a', '1' from generate_series(1, 1000)",
    )
    with pytest.raises(InvalidInputError, match="1000 signals"):
        await client.signal(other.id, "a")


async def test_two_waits_side_by_side_take_two_signals(client: Client, shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def both(ctx: grns.Context) -> list[int]:
        return sorted(await asyncio.gather(ctx.wait_for_signal("a"), ctx.wait_for_signal("a")))

    with attempts_of(pool, shared, client) as attempts:
        task = await submit(shared)
        await client.signal(task.id, "a", 1)
        assert await attempts.run(task.id) == "waiting"
        assert await client.signal(task.id, "a", 2) == "woken"
        assert await attempts.run(task.id) == "succeeded"
    assert await result_of(shared, task.id) == "[1, 2]"


async def test_an_id_is_one_of_its_task(client: Client, shared: Database) -> None:
    signal_id = uuid4()
    for _ in range(2):
        task = await submit(shared)
        assert await client.signal(task.id, "a", 1, signal_id=signal_id) == "kept"


async def test_a_cancelled_wait_ends(attempts: Attempts, client: Client, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    assert await cancel(shared, task.id) == {task.id: "cancelled"}
    assert (await kinds_of(shared, task.id))[-1] == "evt.task.cancelled"


async def test_signals_from_sql(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "waiting"
    sql = "select grns.send_signal($1, 'approved', '7') as answer"
    assert (await fetch(shared, sql, task.id))[0]["answer"] == "woken"
    with pytest.raises(asyncpg.NoDataFoundError):
        await fetch(shared, sql, "gr-nothing")
    assert await attempts.run(task.id) == "succeeded"


async def test_only_the_attempt_that_owns_the_task_takes_a_signal(client: Client, shared: Database) -> None:
    from grns.errors import LeaseLostError
    from grns.maintenance.reaper import reap
    from grns.worker.step_store import StepStore
    from tests.support.store import lapse

    task = await submit(shared)
    old = await claim(shared, task.id)
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    new = await claim(shared, task.id)
    await client.signal(task.id, "approved", 1)
    store = StepStore(shared, batch_limit=1)
    with pytest.raises(LeaseLostError):
        await store.take_signal(old, "signal approved", "approved")
    assert await store.take_signal(new, "signal approved", "approved") == '{"value": 1}'
    assert await store.take_signal(new, "signal approved", "approved") == '{"value": 1}', "asked again"
    assert await store.take_signal(new, "signal approved#2", "approved") is None
