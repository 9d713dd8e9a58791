"""Steps: what is recorded never runs again, whatever becomes of the attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.errors import (
    ConflictError,
    ContendedError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
)
from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.postgres.database import Database
from grns.tasks.steps import list_steps
from grns.telemetry.task_signals import StepsUnused
from grns.worker.step import RecordedStep
from grns.worker.step_store import NewStep, StepStore, record_in
from grns.worker.steps import MOST_STEPS
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import (
    cancel,
    claim,
    fall_due,
    fetch,
    kinds_of,
    lapse,
    log_of,
    redrive,
    release,
    row_of,
    stranger,
)

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
RUNS: list[str] = []
FAILS: list[str] = []  # where the handler breaks off, once each


@dataclass
class Account:
    number: int


def _once(place: str) -> None:
    if place in FAILS:
        FAILS.remove(place)
        raise ConnectionError(place)


async def create_account(number: int) -> Account:
    RUNS.append("create")
    _once("in create")
    return Account(number)


def greet(name: str) -> str:
    RUNS.append("greet")
    return f"hello {name}"


@POOL.task("noop")
async def onboard(ctx: grns.Context) -> dict[str, Any]:
    _once("before")
    account = await ctx.step("account", create_account, 7)
    assert account == Account(7)
    _once("between")
    greeting = await ctx.step("greet", greet, name="ann")
    again = await ctx.step("greet", greet, name="bob")
    _once("after")
    return {"number": account.number, "greetings": [greeting, again]}


@pytest.fixture
async def attempts(shared: Database) -> AsyncIterator[Attempts]:
    RUNS.clear()
    FAILS.clear()
    with attempts_of(POOL, shared) as attempts:
        yield attempts


async def steps_of(database: Database) -> list[tuple[str, str, int]]:
    rows = await fetch(
        database, "select name, value::text as value, attempt from grns.steps order by recorded_at"
    )
    return [(row["name"], row["value"], row["attempt"]) for row in rows]


async def test_each_step_is_recorded_with_its_value(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    assert await attempts.run(task.id) == "succeeded"
    assert (await row_of(shared, task.id))[
        "result"
    ] == '{"number": 7, "greetings": ["hello ann", "hello bob"]}'
    assert await steps_of(shared) == [
        ("account", '{"number": 7}', 1), ("greet", '"hello ann"', 1), ("greet#2", '"hello bob"', 1),
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["before", "in create", "between", "after"])
async def test_a_recorded_step_never_runs_again(attempts: Attempts, shared: Database, place: str) -> None:
    FAILS.append(place)
    task = await submit(shared)
    assert await attempts.run(task.id) == "retry_wait"
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "succeeded"
    assert RUNS.count("create") == (2 if place == "in create" else 1)
    assert RUNS.count("greet") == 2


async def test_an_attempt_with_a_new_step_does_not_count(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    FAILS.extend(["between", "after"])
    for uncounted in (1, 2):
        assert await attempts.run(task.id) == "retry_wait"
        assert (await row_of(shared, task.id))["uncounted_attempts"] == uncounted
        await fall_due(shared, task.id)
    FAILS.append("after")
    assert await attempts.run(task.id) == "dead"


async def test_an_attempt_whose_worker_dies_after_a_step_does_not_count(shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    taken = await claim(shared, task.id)
    await StepStore(shared, batch_limit=1).record(taken, "one", "step", "1")
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    row = await row_of(shared, task.id)
    assert (row["status"], row["uncounted_attempts"]) == ("queued", 1)
    await claim(shared, task.id)
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    assert (await row_of(shared, task.id))["status"] == "dead"


async def test_only_the_attempt_that_owns_the_task_records(shared: Database) -> None:
    store = StepStore(shared, batch_limit=10)
    task = await submit(shared)
    old = await claim(shared, task.id)
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    new = await claim(shared, task.id)
    with pytest.raises(LeaseLostError):
        await store.record(old, "one", "step", "1")
    assert await store.record(new, "one", "step", "2") == "2"
    assert await store.record(new, "one", "step", "3") == "2", "the first value stays"
    assert [row.value for row in await store.read(new)] == ["2"]
    answers = await asyncio.gather(
        *(store.record(one, f"n{n}", "step", str(n)) for n, one in enumerate([old, new, old, new])),
        return_exceptions=True,
    )
    assert [isinstance(one, LeaseLostError) or one for one in answers] == [True, "1", True, "3"]


async def test_a_step_is_not_recorded_while_another_transaction_holds_the_task(shared: Database) -> None:
    store = StepStore(shared, batch_limit=10)
    taken = await claim(shared, (await submit(shared)).id)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.tasks for update")
        with pytest.raises(ContendedError):
            await store.record(taken, "one", "step", "1")
    assert await store.record(taken, "one", "step", "1") == "1"


async def test_a_step_whose_answer_is_lost_is_recorded_once(attempts: Attempts, shared: Database) -> None:
    class Deaf(StepStore):
        count = 0

        async def record(self, *arguments: Any) -> str:
            kept = await super().record(*arguments)
            self.count += 1
            if self.count % 2:
                raise OutcomeUnknownError("no answer")
            return kept

    attempts.store = Deaf(shared, batch_limit=10)
    assert await attempts.run((await submit(shared)).id) == "succeeded"
    assert RUNS == ["create", "greet", "greet"]
    assert len(await steps_of(shared)) == 3


async def test_a_step_that_is_being_recorded_holds_off_the_reaper(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)
    await lapse(shared, taken.id)
    async with stranger(shared) as connection:
        await record_in(connection, NewStep(taken, "one", "step", "1"))
        assert not await reap(shared, 10, None), "a new attempt would not see the step"
    assert len(await reap(shared, 10, None)) == 1


async def test_steps_side_by_side(shared: Database) -> None:
    pool = grns.Pool("worker")
    ran: list[int] = []

    async def search(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0.01)
        return number

    @pool.task("noop")
    async def plan(ctx: grns.Context) -> list[int]:
        found = await asyncio.gather(*(ctx.step(f"search-{n}", search, n) for n in range(20)))
        if ctx.attempt == 1:
            raise ConnectionError
        return list(found)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "retry_wait"
        await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    assert sorted(ran) == list(range(20))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda ctx: asyncio.gather(*(ctx.step("a", greet, "x") for _ in range(2))), "runs already"),
        (lambda ctx: ctx.step("", greet, "x"), "the name of a step is text"),
        (lambda ctx: ctx.step("a#2", greet, "x"), "the name of a step is text"),
        (lambda ctx: ctx.step("a", lambda: object()), "the value of the step 'a' cannot be stored"),
        (lambda ctx: ctx.step("a", lambda: "x" * 300_000), "the value of the step 'a' cannot be stored"),
        (lambda ctx: ctx.sleep(1e10), "wait for up to 366 days"),
        (lambda ctx: ctx.sleep("1h"), "sleep for seconds or a timedelta"),
    ],
)  # fmt: skip
async def test_what_cannot_be_a_step_is_refused(shared: Database, call: Any, why: str) -> None:
    pool = grns.Pool("worker", non_retryable=(InvalidInputError,))

    @pool.task("noop")
    async def wrong(ctx: grns.Context) -> None:
        await call(ctx)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "failed"
    assert why in (await row_of(shared, task.id))["last_error"]


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_wait_begins_once_the_steps_beside_it_are_recorded(shared: Database, is_first: bool) -> None:
    pool, ran = grns.Pool("worker"), list[str]()

    async def slow() -> str:
        await asyncio.sleep(0.1)
        ran.append("slow")
        return "done"

    @pool.task("noop")
    async def both(ctx: grns.Context) -> None:
        beside = [ctx.step("slow", slow), ctx.sleep(3600)]
        await asyncio.gather(*(reversed(beside) if is_first else beside))

    with attempts_of(pool, shared) as attempts:
        assert await attempts.run((await submit(shared)).id) == "waiting"
    assert ran == ["slow"]
    assert [name for name, _, _ in await steps_of(shared)] == ["slow", "sleep"]


async def test_waits_of_a_task_group_spend_no_attempt(shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def both(ctx: grns.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep(3600))
            group.create_task(ctx.sleep(3600))

    with attempts_of(pool, shared) as attempts:
        assert await attempts.run((await submit(shared, max_attempts=1)).id) == "waiting"


async def test_a_step_beside_one_that_fails_is_recorded(shared: Database) -> None:
    pool, ran = grns.Pool("worker"), list[str]()

    async def slow() -> str:
        await asyncio.sleep(0.1)
        ran.append("slow")
        return "done"

    async def broken() -> None:
        raise ConnectionError

    @pool.task("noop")
    async def both(ctx: grns.Context) -> None:
        parts: list[Any] = [ctx.step("slow", slow)]
        if ctx.attempt == 1:
            parts.append(ctx.step("broken", broken))
        await asyncio.gather(*parts)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "retry_wait"
        await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    assert ran == ["slow"]


async def test_a_value_may_look_like_that_of_a_sleep(shared: Database) -> None:
    pool = grns.Pool("worker")

    async def plan() -> dict[str, str]:
        return {"until": "2026-01-01"}

    @pool.task("noop")
    async def odd(ctx: grns.Context) -> dict[str, str]:
        found = await ctx.step("plan", plan)
        if ctx.attempt == 1:
            raise ConnectionError
        return found

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "retry_wait"
        await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"


async def test_an_attempt_with_a_new_step_is_released_as_often_as_it_takes(shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    store = StepStore(shared, batch_limit=1)
    for number in range(4):
        taken = await claim(shared, task.id)
        await store.record(taken, f"step-{number}", "step", "1")
        assert await release(shared, taken) == {task.id: "queued"}
    row = await row_of(shared, task.id)
    assert (row["uncounted_attempts"], row["released"]) == (4, 0)


async def test_a_step_with_a_transaction_stands_alone(shared: Database) -> None:
    pool = grns.Pool("worker", non_retryable=(InvalidInputError,))

    async def write(connection: Any) -> None: ...

    @pool.task("noop")
    async def nested(payload: dict[str, Any], ctx: grns.Context) -> None:
        if payload["inside"] == "step":
            await ctx.step("outer", ctx.step_transaction, "inner", write)
        async with ctx.transaction():
            await ctx.step_transaction("inner", write)

    with attempts_of(pool, shared) as attempts:
        for inside, why in (("step", "in no other step"), ("transaction", "outside of ctx.transaction")):
            task = await submit(shared, payload={"inside": inside})
            assert await attempts.run(task.id) == "failed"
            assert why in (await row_of(shared, task.id))["last_error"]


async def test_a_step_cannot_wait(shared: Database) -> None:
    pool = grns.Pool("worker", non_retryable=(InvalidInputError,))

    @pool.task("noop")
    async def nested(ctx: grns.Context) -> None:
        await ctx.step("outer", ctx.sleep, 3600)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "failed"
    assert "a step cannot wait" in (await row_of(shared, task.id))["last_error"]


async def test_a_sleep_until_a_time_that_has_passed_is_over(shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def remind(payload: dict[str, Any], ctx: grns.Context) -> None:
        await ctx.sleep(payload["due"] - time.time())

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared, payload={"due": time.time() + 3})
        assert await attempts.run(task.id) == "waiting"
        await fetch(
            shared, "update grns.tasks set payload = jsonb_build_object('due', 1) where id = $1", task.id
        )
        await fetch(shared, "update grns.steps set value = jsonb_build_object('until', 1)")
        await fall_due(shared, task.id)
        await shared.run("promote", 10, None)
        assert await attempts.run(task.id) == "succeeded"


@pytest.mark.parametrize(
    ("time", "status"), [("2020-01-01T00:00+00:00", "succeeded"), ("2999-01-01", "failed")]
)
async def test_a_handler_sleeps_until_a_time(shared: Database, time: str, status: str) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def remind(payload: dict[str, Any], ctx: grns.Context) -> None:
        await ctx.sleep_until(datetime.fromisoformat(payload["time"]))

    with attempts_of(pool, shared) as attempts:
        due = datetime.now(UTC) + timedelta(hours=1)
        task = await submit(shared, payload={"time": due.isoformat()})
        assert await attempts.run(task.id) == "waiting"
        found = (await row_of(shared, task.id))["next_attempt_at"]
        assert abs((found - due).total_seconds()) < 5
        task = await submit(shared, payload={"time": time})
        assert await attempts.run(task.id) == status


async def test_a_reset_runs_a_task_again_from_a_step(shared: Database, client: Client) -> None:
    pool, ran = grns.Pool("worker", max_attempts=1), list[str]()

    @pool.task("noop")
    async def flow(ctx: grns.Context) -> None:
        await ctx.step("first", lambda: ran.append("first"))
        approval = await ctx.wait_for_signal("approved", timeout=600)
        await ctx.step("last", lambda: ran.append(f"last {approval}"))
        raise grns.Fail("broken")

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        for approval in (1, 2):
            await client.signal(task.id, "approved", approval)
        assert await attempts.run(task.id) == "failed"
        for name, error in (("nothing", NotFoundError), ("last", None), ("signal approved", None)):
            if error is not None:
                with pytest.raises(error):
                    await client.reset(task.id, to=name)
                continue
            assert await client.reset(task.id, to=name) == "redriven"
            with pytest.raises(ConflictError, match="is queued: only one that failed"):
                await client.reset(task.id, to="first")
            assert await attempts.run(task.id) == "failed"
    assert ran == ["first", "last 1", "last 1", "last 1"], "the signal was taken again"
    with pytest.raises(NotFoundError):
        await client.reset("gr-nobody", to="first")


async def test_a_reset_to_a_wait_gives_it_its_whole_time_again(shared: Database, client: Client) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def wait(ctx: grns.Context) -> None:
        await ctx.step("first", greet, "x")
        await ctx.wait_for_signal("approved", timeout=600)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "waiting"
        await fetch(shared, "update grns.signal_waits set until = now()")
        await client.cancel(task.id)
        assert await client.reset(task.id, to="first") == "redriven"
        assert await attempts.run(task.id) == "waiting"
        assert (await row_of(shared, task.id))["next_attempt_at"] > datetime.now(UTC) + timedelta(minutes=5)


async def test_steps_that_a_handler_does_not_ask_for_are_reported(shared: Database) -> None:
    pool = grns.Pool("worker")
    is_old = True

    @pool.task("noop")
    async def change(ctx: grns.Context) -> None:
        await ctx.step("kept", greet, "x")
        if is_old:
            await ctx.step("gone", greet, "x")
            raise ConnectionError("once")

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "retry_wait"
        is_old = False
        await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    assert [signal.steps for signal in attempts.emitted if isinstance(signal, StepsUnused)] == [["gone"]]


async def test_a_step_that_has_become_another_kind_is_refused(attempts: Attempts, shared: Database) -> None:
    FAILS.append("before")
    task = await submit(shared)
    await attempts.run(task.id)
    await fetch(
        shared,
        "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
        f""" values ('{task.id}', 'account', 'default', 'sleep', '{{"until": 0}}', 1)""",
    )
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "retry_wait"
    assert "was recorded as a sleep" in (await row_of(shared, task.id))["last_error"]


async def test_a_task_has_so_many_steps_at_most(shared: Database) -> None:
    pool = grns.Pool("worker", non_retryable=(InvalidInputError,))

    @pool.task("noop")
    async def many(ctx: grns.Context) -> None:
        ctx._own_steps("steps")._recorded = {
            str(n): RecordedStep(str(n), "step", "1") for n in range(MOST_STEPS)
        }
        await ctx.step("one more", greet, "x")

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "failed"
    assert "a task has at most 10,000 steps" in (await row_of(shared, task.id))["last_error"]


# ---------------------------------------------------------------- a step with rows of the user


async def test_rows_of_the_user_and_the_step_are_one_commit(shared: Database) -> None:
    await fetch(shared, "create table if not exists public.step_payments (id serial, number integer)")
    await fetch(shared, "delete from public.step_payments")
    pool = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
    breaks = ["inside", "behind"]

    async def pay(connection: Any, number: int) -> int:
        paid: int = await connection.fetchval(
            "insert into public.step_payments (number) values ($1) returning number", number
        )
        if "inside" in breaks:
            breaks.remove("inside")
            raise ConnectionError
        return paid

    @pool.task("noop")
    async def order(ctx: grns.Context) -> int:
        paid = await ctx.step_transaction("pay", pay, 7)
        if "behind" in breaks:
            breaks.remove("behind")
            raise ConnectionError
        return paid

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        for _ in range(2):
            assert await attempts.run(task.id) == "retry_wait"
            await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    assert [row["number"] for row in await fetch(shared, "select number from public.step_payments")] == [7]
    await fetch(shared, "drop table public.step_payments")


# ---------------------------------------------------------------- sleep


def sleeper(duration: float | timedelta) -> tuple[grns.Pool, list[int]]:
    """Return a pool whose handler sleeps, and its attempts."""
    pool, seen = grns.Pool("worker"), list[int]()

    @pool.task("noop")
    async def remind(ctx: grns.Context) -> str:
        seen.append(ctx.attempt)
        await ctx.step("greet", greet, "ann")
        await ctx.sleep(duration)
        return "reminded"

    return pool, seen


async def test_a_sleep_gives_the_slot_away_and_spends_no_attempt(shared: Database) -> None:
    pool, seen = sleeper(timedelta(days=3))
    RUNS.clear()
    with attempts_of(pool, shared) as attempts:
        task = await submit(shared, max_attempts=1)
        assert await attempts.run(task.id) == "waiting"
        row = await row_of(shared, task.id)
        assert (row["waits_for"], row["uncounted_attempts"], row["owner_agent_id"]) == ("time", 1, None)
        assert 2.99 < (row["next_attempt_at"] - row["updated_at"]).total_seconds() / 86_400 < 3.01
        event = (await log_of(shared, task.id))[-1]
        assert event["kind"] == "evt.task.waiting"
        await queue_now(shared, task.id)
        assert await attempts.run(task.id) == "waiting", "too early: it sleeps on"
        assert (await row_of(shared, task.id))["next_attempt_at"] == row["next_attempt_at"]
        await fetch(shared, """update grns.steps set value = '{"until": 1}' where kind = 'sleep'""")
        await queue_now(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    assert seen == [1, 2, 3]
    assert RUNS == ["greet"]


async def test_a_short_sleep_keeps_the_slot(shared: Database) -> None:
    pool, seen = sleeper(0.01)
    with attempts_of(pool, shared) as attempts:
        assert await attempts.run((await submit(shared)).id) == "succeeded"
    assert seen == [1]
    assert [name for name, _, _ in await steps_of(shared)] == ["greet"]


async def test_a_task_that_sleeps_can_be_cancelled(shared: Database) -> None:
    pool, _ = sleeper(3600)
    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "waiting"
        assert await cancel(shared, task.id) == {task.id: "cancelled"}
        assert await redrive(shared, task.id) == {task.id: "redriven"}
        assert await attempts.run(task.id) == "waiting"
    assert (await kinds_of(shared, task.id))[-1] == "evt.task.waiting"


async def test_a_cancel_that_was_asked_for_comes_before_a_sleep(shared: Database) -> None:
    pool, _ = sleeper(3600)
    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        await fetch(shared, "update grns.tasks set cancel_requested_at = now()")
        assert await attempts.run(task.id) == "cancelled"


async def test_a_suspension_whose_answer_is_lost_is_written_once(shared: Database) -> None:
    pool, _ = sleeper(3600)
    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        asked = attempts.executor.finishes._database
        lost: list[str] = []

        class Deaf:
            def __getattr__(self, name: str) -> Any:
                return getattr(asked, name)

            async def run(self, name: str, *arguments: Any) -> Any:
                rows = await asked.run(name, *arguments)
                if name == "suspend" and not lost:
                    lost.append(name)
                    raise OutcomeUnknownError("no answer")
                return rows

        attempts.executor.finishes._database = Deaf()  # type: ignore[assignment]
        assert await attempts.run(task.id) == "waiting"
    assert lost
    assert (await kinds_of(shared, task.id)).count("evt.task.waiting") == 1


async def queue_now(database: Database, task_id: str) -> None:
    """Queue a task that sleeps, as the scheduler does when it is due."""
    await fetch(
        database,
        f"update grns.tasks set next_attempt_at = now() - interval '1 second' where id = '{task_id}'",
    )
    await promote(database, 10, None)


async def test_the_recorded_steps_are_listed(attempts: Attempts, shared: Database) -> None:
    task = await submit(shared)
    await attempts.run(task.id)
    await fetch(
        shared,
        "insert into grns.steps (task_id, name, workspace, kind, value, attempt)"
        f" select '{task.id}', 'large', 'default', 'step', to_jsonb(repeat('x', 5000)), 1",
    )
    page = await list_steps(shared, task.id, workspace="default", limit=2)
    assert [(one.name, one.kind, one.attempt, one.value) for one in page.rows] == [
        ("account", "step", 1, {"number": 7}), ("greet", "step", 1, "hello ann"),
    ]  # fmt: skip
    page = await list_steps(shared, task.id, workspace="default", limit=2, after=page.next_cursor)
    assert [(one.name, one.value, one.value_bytes) for one in page.rows] == [
        ("greet#2", "hello bob", 11), ("large", None, 5002),
    ]  # fmt: skip
    assert page.next_cursor is None
    assert (await list_steps(shared, task.id, workspace="other", limit=2)).rows == []
    with pytest.raises(InvalidInputError):
        await list_steps(shared, task.id, workspace="default", limit=2, after="nonsense")
