"""Pools: how functions become handlers, what fills their parameters, and what runs around them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import grns
from grns.errors import InvalidInputError
from grns.model.outcome import Claim, Outcome, Verb
from grns.postgres.database import Database
from grns.settings import load
from grns.worker.context import Context
from grns.worker.handler_runner import HandlerRunner
from grns.worker.hooks import AttemptEnd
from grns.worker.leases import Lease
from grns.worker.pool import Pool
from tests.support.store import forged


class Page(BaseModel):
    url: str
    depth: int = 1


@dataclass
class Point:
    x: int
    seen_at: datetime | None = None


class Order(TypedDict):
    loaves: int


async def run(pool: Pool, task_type: str, payload: dict[str, Any] | None = None) -> Outcome:
    """Run one attempt of a task as a worker does."""
    claim = forged("gr-0", attempt=1)
    claim.task_type, claim.payload = task_type, json.dumps(payload or {})
    limits = load().result_limits

    def context(claim: Claim, lease: Lease) -> Context:
        database = Database("postgresql://127.0.0.1:1/nobody", name="test")
        return Context(
            claim, lease, agent_id="a", workspace="default", database=database, result_limits=limits
        )

    runner = HandlerRunner(pool, make_context=context, threads=1, result_limits=limits, emit=lambda _: None)
    await runner.start()
    try:
        return (await runner.run(claim, Lease(claim, 0, 1)))[0]
    finally:
        runner.close()
        await runner.stop()


async def result_of(pool: Pool, task_type: str, payload: dict[str, Any] | None = None) -> Any:
    """Return the result of a task that has to succeed."""
    outcome = await run(pool, task_type, payload)
    assert outcome.verb is Verb.SUCCEED, outcome.error
    return json.loads(outcome.result or "")


# ---------------------------------------------------------------- registering


def test_task_without_name_is_named_after_its_function() -> None:
    pool = Pool("shop")

    @pool.task
    async def bake(order: Order) -> None: ...

    @pool.task(max_attempts=5)
    def knead(order: Order) -> None: ...

    @pool.task("sell", timeout=timedelta(minutes=2))
    def anything() -> None: ...

    assert set(pool.handlers) == {"bake", "knead", "sell"}
    assert (bake.task_type, bake.agent_type, bake.max_attempts) == ("bake", "shop", None)
    assert (knead.max_attempts, anything.timeout_seconds) == (5, 120.0)


async def test_handler_can_be_called_as_its_function() -> None:
    pool = Pool("shop")

    @pool.task
    def double(order: Order) -> int:
        """Return twice as many."""
        return 2 * order["loaves"]

    assert double({"loaves": 3}) == 6
    assert (double.function.__name__, double.__doc__) == ("double", "Return twice as many.")


def test_settings_of_the_pool_are_defaults_of_its_tasks() -> None:
    backoff = grns.Backoff(base_seconds=1)
    pool = Pool("shop", max_attempts=7, timeout=30, backoff=backoff, non_retryable=(ValueError,))

    @pool.task
    def bake() -> None: ...

    @pool.task(max_attempts=1, timeout=2, non_retryable=(KeyError,))
    def sell() -> None: ...

    assert (bake.max_attempts, bake.timeout_seconds, bake.backoff) == (7, 30, backoff)
    assert (sell.max_attempts, sell.timeout_seconds) == (1, 2)
    assert sell.non_retryable == (ValueError, KeyError)


def _wrong() -> dict[str, Callable[[Pool], object]]:
    def two_payloads(first: Page, second: Page) -> None: ...
    def with_default(first: Page, second: int = 1) -> None: ...
    def a_number(number: int) -> None: ...
    def some_numbers(numbers: list[int]) -> None: ...
    def gathering(**rest: Any) -> None: ...
    def unknown_type(page: "Unknown") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def no_payload(page: Callable[[], int]) -> None: ...

    class Job: ...

    return {
        "nothing fills 'second'": lambda pool: pool.task(two_payloads),
        "nothing fills 'second': a handler takes one": lambda pool: pool.task(with_default),
        "'number' is int, and a payload is a JSON object": lambda pool: pool.task(a_number),
        "'numbers' is list, and a payload": lambda pool: pool.task(some_numbers),
        "cannot be filled: name each": lambda pool: pool.task(gathering),
        "'page' cannot be resolved": lambda pool: pool.task(unknown_type),
        "not a class": lambda pool: pool.task(Job),
        "not a int": lambda pool: pool.task(3),
        "not a Handler": lambda pool: pool.task(pool.task("once")(lambda: None)),
        "bad name": lambda pool: pool.task("bad name"),
        "exception classes": lambda pool: pool.task(non_retryable=ValueError)(lambda: None),
        "<lambda>": lambda pool: pool.task(lambda: None),
    }


@pytest.mark.parametrize("said", _wrong())
def test_what_cannot_be_a_handler_is_refused(said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        _wrong()[said](Pool("shop"))


# ---------------------------------------------------------------- parameters and results


async def test_parameters_are_filled_by_annotation_in_any_order() -> None:
    pool = Pool("shop")

    @pool.task
    async def first(page: Page, ctx: grns.Context) -> list[Any]:
        return [page.url, ctx.attempt]

    @pool.task
    def second(context: grns.Context, point: Point) -> list[Any]:
        return [context.attempt, point.x]

    @pool.task
    async def third(ctx, order: Order, *, most: int = 9) -> int:  # type: ignore[no-untyped-def]
        assert ctx.payload == order
        return order["loaves"] + most

    @pool.task
    async def fourth() -> str:
        return "nothing"

    assert await result_of(pool, "first", {"url": "x"}) == ["x", 1]
    assert await result_of(pool, "second", {"x": 4}) == [1, 4]
    assert await result_of(pool, "third", {"loaves": 1}) == 10
    assert await result_of(pool, "fourth", {"ignored": 1}) == "nothing"


@pytest.mark.parametrize("task_type", ["page", "point", "order", "numbers"])
async def test_payload_that_does_not_fit_fails_the_task(task_type: str) -> None:
    pool = Pool("shop")

    @pool.task
    def page(page: Page) -> None: ...
    @pool.task
    def point(point: Point) -> None: ...
    @pool.task
    def order(order: Order) -> None: ...
    @pool.task
    def numbers(numbers: dict[str, int]) -> None: ...

    outcome = await run(pool, task_type, {"x": "a"})
    assert (outcome.verb, outcome.error_class) == (Verb.FAIL, "bad_payload")


async def test_results_are_serialized_by_annotation() -> None:
    pool = Pool("shop")
    moment = datetime.fromisoformat("2026-11-26T12:00:00+00:00")
    token = UUID(int=7)

    @pool.task
    def page() -> Page:
        return Page(url="x")

    @pool.task
    def points() -> list[Point]:
        return [Point(1, moment)]

    @pool.task
    def by_id() -> dict[str, UUID | None]:
        return {"token": token, "none": None}

    @pool.task
    def unannotated():  # type: ignore[no-untyped-def]
        return Point(2, moment)

    @pool.task
    def impossible() -> dict[str, Any]:
        return {"what": object()}

    assert await result_of(pool, "page") == {"url": "x", "depth": 1}
    assert await result_of(pool, "points") == [{"x": 1, "seen_at": "2026-11-26T12:00:00Z"}]
    assert await result_of(pool, "by_id") == {"token": str(token), "none": None}
    assert await result_of(pool, "unannotated") == {"x": 2, "seen_at": "2026-11-26T12:00:00Z"}
    assert (await run(pool, "impossible")).error_class == "bad_result"


async def test_exceptions_that_are_non_retryable_fail_the_task() -> None:
    pool = Pool("shop", non_retryable=(LookupError,))

    @pool.task
    def bake() -> None:
        raise KeyError("rye")

    @pool.task
    def sell() -> None:
        raise ValueError("closed")

    @pool.task(non_retryable=(Exception,))
    def wait() -> None:
        raise grns.Retry("not yet")

    assert (await run(pool, "bake")).verb is Verb.FAIL
    assert (await run(pool, "sell")).verb is Verb.RETRY
    assert (await run(pool, "wait")).verb is Verb.RETRY, "asked for"


async def test_context_says_what_is_known_of_the_attempt() -> None:
    pool = Pool("shop")

    @pool.task(timeout=60)
    def bake(ctx: grns.Context) -> list[Any]:
        assert ctx.deadline is not None
        left = (ctx.deadline - datetime.now(ctx.deadline.tzinfo)).total_seconds()
        return [ctx.payload, ctx.max_attempts, 50 < left <= 60, ctx.should_stop, ctx.stop_reason]

    assert await result_of(pool, "bake", {"a": 1}) == [{"a": 1}, 3, True, False, None]


# ---------------------------------------------------------------- dependencies


async def test_dependencies_are_made_once_per_attempt_and_ended_last_first() -> None:
    pool, said = Pool("shop"), list[str]()

    async def get_log(ctx: grns.Context) -> AsyncIterator[list[str]]:
        said.append(f"log of {ctx.task_type}")
        yield said
        said.append("log ends")

    def get_connection(log: Annotated[list[str], grns.Depends(get_log)]) -> Iterator[str]:
        log.append("connected")
        yield "connection"
        log.append("disconnected")

    async def get_number() -> int:
        return 7

    @pool.task
    def bake(
        order: Order,
        connection: Annotated[str, grns.Depends(get_connection)],
        log: Annotated[list[str], grns.Depends(get_log)],
        number: Annotated[int, grns.Depends(get_number)],
    ) -> list[Any]:
        log.append("baked")
        return [order["loaves"], connection, number]

    assert await result_of(pool, "bake", {"loaves": 2}) == [2, "connection", 7]
    assert said == ["log of bake", "connected", "baked", "disconnected", "log ends"]


async def test_dependency_that_raises_is_an_attempt_that_failed() -> None:
    pool, ended = Pool("shop"), list[str]()

    def get_first() -> Iterator[int]:
        yield 1
        ended.append("first")

    def get_second() -> int:
        raise ConnectionError("no database")

    @pool.task
    async def bake(
        first: Annotated[int, grns.Depends(get_first)], second: Annotated[int, grns.Depends(get_second)]
    ) -> None:
        raise AssertionError("not called")

    outcome = await run(pool, "bake")
    assert (outcome.verb, outcome.error_class) == (Verb.RETRY, "ConnectionError")
    assert ended == []  # as in a `with` block: the generator sees the error
    assert "no database" in (outcome.error or "")


# ---------------------------------------------------------------- lifespan, hooks, include


async def test_lifespan_surrounds_the_attempts_and_its_value_is_the_state() -> None:
    said = list[str]()

    @asynccontextmanager
    async def lifespan(pool: grns.Pool) -> AsyncIterator[dict[str, str]]:
        said.append(f"begin {pool.name}")
        yield {"oven": "hot"}
        said.append("end")

    pool = Pool("shop", lifespan=lifespan)
    pool.on_startup(lambda: said.append("startup"))

    @pool.on_shutdown
    async def shut_down() -> None:
        said.append("shutdown")

    @pool.task
    async def bake(ctx: grns.Context) -> str:
        said.append("bake")
        return str(ctx.state["oven"])

    assert await result_of(pool, "bake") == "hot"
    assert said == ["begin shop", "startup", "bake", "shutdown", "end"]


async def test_hooks_observe_attempts_and_cannot_break_them() -> None:
    pool, seen = Pool("shop"), list[Any]()

    @pool.on_attempt_started
    async def started(ctx: grns.Context) -> None:
        seen.append(("started", ctx.task_type, ctx.payload))

    @pool.on_attempt_finished
    def finished(ctx: grns.Context, end: AttemptEnd) -> None:
        seen.append((end.verb, repr(end.error), end.duration_seconds >= 0))

    @pool.on_attempt_finished
    def broken(ctx: grns.Context, end: AttemptEnd) -> None:
        raise RuntimeError("no monitoring today")

    @pool.task
    async def bake() -> None:
        raise ValueError("cold")

    @pool.task
    async def sell(page: Page) -> int:
        return page.depth

    assert (await run(pool, "bake")).verb is Verb.RETRY
    assert await result_of(pool, "sell", {"url": "x"}) == 1
    assert seen == [
        ("started", "bake", {}),
        ("retry", "ValueError('cold')", True),
        ("started", "sell", Page(url="x")),
        ("succeed", "None", True),
    ]


async def test_hook_that_hangs_holds_an_attempt_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grns.worker.handler_runner._HOOK_SECONDS", 0.05)
    pool = Pool("shop")

    @pool.on_attempt_started
    async def hang(ctx: grns.Context) -> None:
        await asyncio.Event().wait()

    @pool.task
    async def bake() -> str:
        return "baked"

    assert await result_of(pool, "bake") == "baked"


async def test_included_pool_shares_name_state_and_hooks() -> None:
    seen = list[str]()

    @asynccontextmanager
    async def lifespan(pool: grns.Pool) -> AsyncIterator[str]:
        yield "state of the shop"

    mail, pool = Pool(), Pool("shop", lifespan=lifespan)
    pool.on_attempt_started(lambda ctx: seen.append(ctx.task_type))

    @mail.task
    async def send_mail(ctx: grns.Context) -> str:
        return str(ctx.state)

    with pytest.raises(InvalidInputError, match="no name"):
        send_mail.agent_type  # noqa: B018
    pool.include(mail)

    @mail.task
    async def later() -> None: ...

    assert (send_mail.agent_type, later.agent_type) == ("shop", "shop")
    assert set(pool.handlers) == {"send_mail", "later"}
    assert await result_of(pool, "send_mail") == "state of the shop"
    assert seen == ["send_mail"]


def test_pool_that_cannot_be_included_is_refused() -> None:
    named, unnamed, pool = Pool("other"), Pool(), Pool("shop")
    pool.task("bake")(lambda: None)
    unnamed.task("bake")(lambda: None)
    for other, why in (
        (named, "workers of its own"),
        (unnamed, "has a handler already"),
        (pool, "of its own"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            pool.include(other)
    once = Pool()
    pool.include(once)
    with pytest.raises(InvalidInputError, match="one other pool"):
        Pool("second").include(once)
    with pytest.raises(InvalidInputError, match="has a handler already"):
        once.task("bake")(lambda: None)
