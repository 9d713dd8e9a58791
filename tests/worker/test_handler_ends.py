"""How attempts end, whatever dependencies, groups and decorators do around the handler."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from unittest.mock import AsyncMock

import pytest
from pydantic import BaseModel, Field, SecretStr, field_serializer

import grns
from grns import testing
from grns.errors import InvalidInputError, TaskEndedError
from grns.postgres.database import Database
from grns.worker.hooks import AttemptEnd
from grns.worker.judgement import is_final

pool = grns.Pool("ends")


class Page(BaseModel):
    url: str


async def greedy() -> AsyncIterator[str]:
    try:
        yield "session"
    except Exception:
        return  # and drops it


@pool.task
async def refuse(session: Annotated[str, grns.Depends(greedy)]) -> None:
    raise grns.Fail(f"{session} refused")


async def test_a_dependency_cannot_drop_what_the_handler_raises() -> None:
    with pytest.raises(grns.Fail, match="session refused"):
        await testing.run(refuse)


@pool.task
async def classic(page: Page, session: str = grns.Depends(greedy), ctx: grns.Context | None = None) -> str:  # type: ignore[assignment]
    return f"{session} {ctx.attempt if ctx else None}"


async def test_dependencies_as_defaults_and_an_optional_context_are_filled() -> None:
    assert await testing.run(classic, Page(url="u"), attempt=2) == "session 2"


@pool.task
async def grouped() -> None:
    async def fail() -> None:
        raise grns.Fail("inside")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


async def test_a_signal_in_a_task_group_counts() -> None:
    with testing.eager() as client:
        handle = await client.submit(grouped)
        assert ((await handle.get()).attempt, await handle.status()) == (1, grns.TaskStatus.FAILED)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return call


@pool.task
@traced
async def decorated(page: Page) -> str:
    return page.url


async def test_a_plain_decorator_around_a_coroutine_function() -> None:
    assert await testing.run(decorated, Page(url="u")) == "u"


def test_a_handler_that_yields_is_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidInputError, match="yields"):
        pool.task(numbers)


async def test_a_transaction_within_a_transaction_is_refused(shared: Database) -> None:
    inner = grns.Pool("nested")

    @inner.task
    async def nested(ctx: grns.Context) -> None:
        async with ctx.transaction(), ctx.transaction():
            pass

    @inner.task
    async def again(ctx: grns.Context) -> None:
        try:
            async with ctx.transaction():
                raise ValueError("not yet")
        except ValueError:
            async with ctx.transaction() as tx:
                tx.complete(Page(url="u"))

    async with shared.connection() as connection:
        with pytest.raises(InvalidInputError, match="opened already"):
            await testing.run(nested, connection=connection)
        done: Any = await testing.run(again, connection=connection)
        assert done == {"url": "u"}


ENDS: list[str] = []
MAY_END, CLOSED = threading.Event(), asyncio.Event()


async def open_connection() -> AsyncIterator[str]:
    yield "open"
    ENDS.append("closed")
    CLOSED.set()


@pool.task(timeout=0.05)
def slow(used: Annotated[str, grns.Depends(open_connection)]) -> None:
    MAY_END.wait(10)
    ENDS.append("thread")


async def test_dependencies_last_as_long_as_the_thread_that_uses_them() -> None:
    with pytest.raises(TimeoutError):
        await testing.run(slow)
    MAY_END.set()
    await asyncio.wait_for(CLOSED.wait(), 5)
    assert ENDS == ["thread", "closed"]


@dataclass
class Sum:
    total: int


class Renamed(BaseModel):
    number: int = Field(serialization_alias="N")


async def test_a_result_that_is_something_else_fails_the_task() -> None:
    results = grns.Pool("results")

    @results.task
    async def wrong() -> Sum:
        return {"sum": 1}  # type: ignore[return-value]

    @results.task
    async def fitting() -> Sum:
        return {"total": 1}  # type: ignore[return-value]

    @results.task
    async def renamed() -> Renamed:
        return Renamed(number=1)

    with testing.eager() as client:
        failed = await client.submit(wrong)
        with pytest.raises(TaskEndedError, match="result cannot be stored"):
            await failed.result()
        assert await (await client.submit(fitting)).result() == Sum(1)
        with pytest.raises(InvalidInputError, match="does not fit its handler's annotation"):
            await (await client.submit(renamed)).result()


async def test_a_payload_whose_aliases_differ_is_refused_before_it_is_submitted() -> None:
    aliases = grns.Pool("aliases")

    @aliases.task
    async def take(payload: Renamed) -> None: ...

    with testing.eager() as client, pytest.raises(InvalidInputError, match="number"):
        await client.submit(take, Renamed(number=1))


async def test_the_hook_is_told_how_the_task_ends_and_of_each_start(shared: Database) -> None:
    hooked, told = grns.Pool("hooked"), list[str]()

    @hooked.on_attempt_started
    def started(ctx: grns.Context) -> None:
        told.append("start")

    @hooked.on_attempt_finished
    def finished(ctx: grns.Context, end: AttemptEnd) -> None:
        told.append(end.verb)

    @hooked.task
    async def done_before_it_fails(ctx: grns.Context) -> None:
        async with ctx.transaction():
            pass
        raise ValueError("too late")

    async with shared.connection() as connection:
        with testing.eager(hooked, connection=connection) as client:
            await client.submit(done_before_it_fails)
    assert told == ["start", "succeed"]


def test_included_tasks_take_what_they_do_not_set_from_the_pool_around() -> None:
    inner = grns.Pool(timeout=5)

    @inner.task
    async def plain() -> None: ...

    @inner.task(max_attempts=2, non_retryable=(KeyError,))
    async def set_here() -> None: ...

    middle = grns.Pool(backoff=grns.Backoff(base_seconds=9))
    middle.include(inner)
    grns.Pool("outer", max_attempts=7, timeout=60, non_retryable=(ValueError,)).include(middle)
    assert (plain.max_attempts, plain.timeout_seconds, plain.backoff.base_seconds) == (7, 5, 9)
    assert plain.non_retryable == (ValueError,)
    assert (set_here.max_attempts, set_here.non_retryable) == (2, (ValueError, KeyError))


@pytest.mark.parametrize(
    "wrong", [{"base_seconds": "3"}, {"max_seconds": -1.0}, {"curve": "exponental"}, {"base_seconds": True}]
)
def test_a_backoff_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        grns.Backoff(**wrong)
    with pytest.raises(InvalidInputError, match="backoff must be"):
        pool.task(backoff=5)(lambda: None)  # type: ignore[call-overload]


async def test_what_an_eager_task_submits_has_its_trace() -> None:
    chain = grns.Pool("chain")

    @chain.task
    async def second() -> None: ...

    @chain.task
    async def first(ctx: grns.Context) -> None:
        await ctx.client.submit(second)

    with testing.eager() as client:
        await client.submit(first)
    parent, child = client.tasks.values()
    assert child.trace_id == parent.trace_id


async def test_eager_clients_say_what_needs_servers() -> None:
    with testing.eager() as client, pytest.raises(InvalidInputError, match="needs servers"):
        await client.list()


async def test_only_exceptions_of_retryable_are_retried() -> None:
    picky = grns.Pool("picky", retryable=(ConnectionError,), max_attempts=2)

    @picky.task
    async def call(kind: dict[str, str]) -> None:
        match kind["kind"]:
            case "away":
                raise ConnectionResetError
            case "grouped":
                raise ExceptionGroup("both", [ConnectionResetError()])
            case "asked":
                raise grns.Retry("again")
        raise KeyError("no such page")

    with testing.eager() as client:
        ends = {}
        for kind in ("away", "grouped", "asked", "other"):
            task = await (await client.submit(call, {"kind": kind})).get()
            ends[kind] = task.status.value, task.attempt
    assert ends == {"away": ("dead", 2), "grouped": ("dead", 2), "asked": ("dead", 2), "other": ("failed", 1)}


def test_a_handler_may_retry_others_and_take_longer_than_its_pool_says() -> None:
    strict = grns.Pool("strict", retryable=(ConnectionError,), timeout=5)

    @strict.task(retryable=(ValueError,), timeout=math.inf)
    async def long() -> None: ...

    assert not is_final(ValueError(), long)
    assert is_final(ConnectionError(), long)
    assert long.timeout_seconds is None
    with pytest.raises(InvalidInputError, match="retryable must be a tuple"):
        grns.Pool("wrong", retryable=ValueError)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["delay", "apply_async", "kiq", "send", "signature"])
def test_the_words_of_other_frameworks_lead_to_submit(name: str) -> None:
    with pytest.raises(AttributeError, match=r"write client\.submit\(refuse, payload"):
        getattr(refuse, name)
    assert not hasattr(refuse, "something_else")


@pytest.mark.parametrize(
    ("option", "words"),
    [("bind", "ctx: grns.Context"), ("max_retries", "max_attempts="), ("colour", "no option of a handler$")],
)
def test_options_of_other_frameworks_lead_to_ours(option: str, words: str) -> None:
    pool: Any = grns.Pool("other")
    with pytest.raises(InvalidInputError, match=words):
        pool.task(**{option: True})(lambda: None)


async def test_the_client_of_a_context_is_not_for_plain_handlers() -> None:
    """A coroutine that a plain handler never awaits would submit nothing, and only a warning would tell."""
    with testing.eager() as client:
        context = testing.context(client=client)
        with pytest.raises(InvalidInputError, match=r"use a grns\.sync\.Client"):
            await asyncio.to_thread(lambda: context.client)
        assert context.client is client


@pytest.mark.parametrize(("name", "words"), [("retry", r"raise grns\.Retry"), ("colour", "has no 'colour'$")])
def test_what_a_context_has_elsewhere(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        getattr(testing.context(), name)


async def test_results_are_not_for_plain_handlers() -> None:
    def body(ctx: grns.Context) -> Any:
        return ctx.results()

    context = testing.context()
    with pytest.raises(InvalidInputError, match="for `async def` handlers"):
        _never = await asyncio.to_thread(grns.Context.results, context)
    assert await body(context) == {}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("step", ("pay", print)),
        ("step_transaction", ("pay", print)),
        ("sleep", (60,)),
        ("wait_for_signal", ("paid",)),
        ("fan_out", ("pages", "fetch", [])),
        ("join", ([],)),
        ("wait", ([],)),
    ],
)
async def test_steps_in_a_plain_handler_fail_the_task_at_its_first_attempt(
    name: str, arguments: tuple[Any, ...]
) -> None:
    pool = grns.Pool("plain", max_attempts=5)

    @pool.task
    def call(payload: dict[str, Any], ctx: grns.Context) -> None:
        getattr(ctx, name)(*arguments)

    with testing.eager() as client:
        task = await (await client.submit(call, {})).get()
    assert (task.status, task.attempt) == ("failed", 1)
    assert f"ctx.{name}() is for `async def` handlers" in str(task.last_error)


async def test_the_methods_of_a_context_are_coroutines_for_mocks_and_partials() -> None:
    context = AsyncMock(spec=grns.Context)
    await context.sleep(60)
    pool = grns.Pool("partial")

    @pool.task
    async def call(payload: dict[str, Any], ctx: grns.Context) -> Any:
        return await ctx.step("results", partial(ctx.results))

    assert await testing.run(call, {}) == {}


def test_the_delay_of_other_frameworks_is_called_after() -> None:
    with pytest.raises(TypeError, match=r"grns.Retry has no 'countdown': write after=30"):
        grns.Retry(countdown=30)  # type: ignore[arg-type]


class Login(BaseModel):
    user: str
    password: SecretStr


class Reset(BaseModel):
    logins: list[Login] = []


class Revealed(Login):
    @field_serializer("password")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


@pytest.mark.parametrize(
    ("model", "paths"),
    [(Login, ("password",)), (Reset, ("logins", "*", "password")), (Login | None, ("password",))],
)
def test_secrets_of_a_model_are_secret_in_the_payload(model: Any, paths: tuple[str, ...]) -> None:
    async def log_in(login: Any) -> None: ...

    log_in.__annotations__["login"] = model
    handler = grns.Pool("logins").task("log_in")(log_in)
    assert handler.secret_paths == (paths,)
    if model is not Reset:
        said = handler.call_signature.payload_text({"user": "ann", "password": "hunter22"})
        assert said == {"user": "ann", "password": "hunter22"}


async def test_a_model_that_writes_its_secrets_itself_is_accepted() -> None:
    @pool.task
    async def log_in_again(login: Revealed) -> int:
        return len(login.password.get_secret_value())

    assert await testing.run(log_in_again, Revealed(user="u", password=SecretStr("12345"))) == 5


async def test_a_list_of_models_is_a_result() -> None:
    @pool.task
    async def crawl():  # type: ignore[no-untyped-def]
        return [Page(url="a"), Page(url="b")]

    assert await testing.run(crawl) == [{"url": "a"}, {"url": "b"}]
