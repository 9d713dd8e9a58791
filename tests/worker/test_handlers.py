"""Running handlers: whatever they do, an outcome comes out, and Postgres can keep it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from pydantic import BaseModel

from grns.errors import Fail, InvalidInputError, LeaseLostError, Retry, Snooze
from grns.maintenance.reaper import reap
from grns.model.failure import fingerprint
from grns.model.outcome import Claim, Outcome, Verb
from grns.model.retry import Backoff
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks import read
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import AttemptFailed, RetryRequested
from grns.worker.context import Context
from grns.worker.finishes import Finish, Finishes
from grns.worker.handler_runner import HandlerRunner
from grns.worker.leases import Lease
from grns.worker.pool import Pool
from tests.support.bad_input import ERRORS, RESULTS, Case
from tests.support.harness import submit
from tests.support.store import claim, fall_due, finish, forged, lapse, log_of, row_of

EMITTED: list[Signal] = []


class Runner:
    """Runs one function as the handler of the task type `noop`."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.pool = Pool("worker")
        self.pool.task("noop", **options)(getattr(function, "function", function))
        self._database = Database("postgresql://127.0.0.1:1/nobody", name="test")
        self._limits = load().result_limits
        self.handlers = HandlerRunner(
            self.pool, make_context=self._context, threads=2, result_limits=self._limits, emit=EMITTED.append
        )

    def _context(self, claimed: Claim, lease: Lease) -> Context:
        return Context(
            claimed, lease, agent_id="a", workspace="default", database=self._database,
            result_limits=self._limits,
        )  # fmt: skip

    async def run(self, claimed: Claim | None = None, lease: Lease | None = None) -> Outcome:
        """Run it once."""
        claimed = claimed or forged("gr-0", attempt=1)
        EMITTED.clear()
        try:
            return (await self.handlers.run(claimed, lease or Lease(claimed, 0, 1)))[0]
        finally:
            self.handlers.close()


def returning(value: Any, *, is_async: bool = True) -> Callable[..., Any]:
    """Return a handler that returns (or raises) something."""

    def function(task: Context) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    async def coroutine(task: Context) -> Any:
        return function(task)

    return coroutine if is_async else function


def error_of(outcome: Outcome) -> dict[str, Any]:
    """Return what an outcome says went wrong."""
    assert outcome.error is not None
    found: dict[str, Any] = json.loads(outcome.error)
    assert found["class"] == outcome.error_class
    return found


async def kept(database: Database, claimed: Claim, outcome: Outcome) -> dict[str, Any]:
    """Write an outcome, and return the task's row."""
    await Finishes(database, batch_limit=1).finish(Finish(claimed, outcome, uuid4()))
    return await row_of(database, claimed.id)


# ---------------------------------------------------------------- what handlers return and raise


@pytest.mark.parametrize("case", RESULTS, ids=str)
async def test_a_result_that_cannot_be_kept_fails_the_task(shared: Database, case: Case) -> None:
    claimed = await claim(shared, (await submit(shared)).id)
    outcome = await Runner(returning(case.value)).run(claimed)
    row = await kept(shared, claimed, outcome)
    assert (row["status"], outcome.error_class) == ("failed", case.code), "another attempt would not mend it"
    said = json.loads(row["last_error"])
    assert said["class"] == "bad_result"
    assert len(said["message"]) < 300


@pytest.mark.parametrize("case", ERRORS, ids=str)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_whatever_is_raised_is_kept(shared: Database, case: Case, is_async: bool) -> None:
    claimed = await claim(shared, (await submit(shared)).id)
    outcome = await Runner(returning(case.value, is_async=is_async)).run(claimed)
    row = await kept(shared, claimed, outcome)
    assert (row["status"], outcome.error_class) == ("retry_wait", case.code)
    said = json.loads(row["last_error"])
    assert said["class"] == case.code
    assert len(said["message"]) <= 4000
    assert "\x00" not in said["message"]
    assert len(row["fingerprint"]) == 16


@pytest.mark.parametrize(
    "value", [None, 0, "", "é\u2028", [], {"a": [1.5, None, True]}, {"": 2**53 + 1}, (1, 2)], ids=repr
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_result_is_json(value: Any, is_async: bool) -> None:
    outcome = await Runner(returning(value, is_async=is_async)).run()
    assert outcome.verb is Verb.SUCCEED
    assert json.loads(outcome.result or "") == (list(value) if isinstance(value, tuple) else value)


async def test_one_text_may_fill_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised for the result holds for each text in it: the work is done, and is not thrown away."""
    largest = 256 * 1024 - len('""')
    assert (await Runner(returning("x" * largest)).run()).verb is Verb.SUCCEED
    assert (await Runner(returning({"x" * (largest - len("{:1}")): 1})).run()).verb is Verb.SUCCEED
    assert (await Runner(returning("x" * (largest + 1))).run()).verb is Verb.FAIL
    monkeypatch.setenv("GRNS_RESULT_MAX_BYTES", str(512 * 1024))
    assert (await Runner(returning("x" * (largest + 1))).run()).verb is Verb.SUCCEED


async def test_a_model_is_a_result() -> None:
    class Answer(BaseModel):
        n: int

    assert (await Runner(returning(Answer(n=1))).run()).result == '{"n":1}'


def test_a_delay_in_place_of_a_reason_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write grns.Retry\(after=60\)"):
        Retry(60)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "verb", "error_class", "backoff"),
    [
        (Retry(after=7), Verb.RETRY, "Retry", 7.0),
        (Retry("busy", after=-7, error_class="busy"), Verb.RETRY, "busy", 0.0),
        (Retry(after=float("nan")), Verb.RETRY, "Retry", None),
        (Retry(after=float("inf")), Verb.RETRY, "Retry", None),
        (Retry(after=1e300), Verb.RETRY, "Retry", 366 * 86_400.0),
        (Retry(after=timedelta(seconds=90)), Verb.RETRY, "Retry", 90.0),
        (Retry(after=cast(Any, "soon")), Verb.RETRY, "Retry", None),
        (Retry(after=10**400), Verb.RETRY, "Retry", None),
        (Fail("no", error_class=cast(Any, 404)), Verb.FAIL, "404", None),
        (Retry(), Verb.RETRY, "Retry", None),
        (Fail("no", error_class="no_such_page"), Verb.FAIL, "no_such_page", None),
        (Fail("no", error_class="x\x00" * 500), Verb.FAIL, ("x\\x00" * 500)[:255], None),
        (ValueError("x"), Verb.RETRY, "ValueError", None),
        (TimeoutError("its own"), Verb.RETRY, "TimeoutError", None),
        (KeyboardInterrupt(), Verb.RETRY, "KeyboardInterrupt", None),
        (SystemExit(3), Verb.RETRY, "SystemExit", None),
        (asyncio.CancelledError("its own"), Verb.RETRY, "CancelledError", None),
        (StopIteration(), Verb.RETRY, "RuntimeError", None),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), Verb.RETRY, "ExceptionGroup", None),
        (RecursionError("deep"), Verb.RETRY, "RecursionError", None),
        (MemoryError(), Verb.RETRY, "MemoryError", None),
        (BaseExceptionGroup("two", [KeyboardInterrupt()]), Verb.RETRY, "BaseExceptionGroup", None),
    ],
    ids=lambda value: ascii(value)[:40],
)
async def test_what_is_raised_decides(
    error: BaseException, verb: Verb, error_class: str, backoff: float | None
) -> None:
    outcome = await Runner(returning(error)).run()
    assert (outcome.verb, outcome.error_class) == (verb, error_class)
    assert error_of(outcome)["message"] is not None
    if backoff is not None:
        assert outcome.backoff_seconds == backoff
    else:
        assert 4.0 <= outcome.backoff_seconds <= 6.0, "the first one of the default"
    assert [signal.event for signal in EMITTED] == [
        "retry_requested" if isinstance(error, Retry) else "attempt_failed"
    ]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("error", [StopIteration(), StopIteration("x"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_thread_raises_comes_back(error: BaseException) -> None:
    outcome = await Runner(returning(error, is_async=False)).run()
    assert outcome.verb is Verb.RETRY
    named = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
    assert outcome.error_class == named


@pytest.mark.parametrize(
    ("reason", "error", "verb"),
    [
        ("shutdown", ConnectionError("closed"), Verb.RELEASE),
        ("deadline", ExceptionGroup("two", [OSError()]), Verb.RELEASE),
        ("cancelled", ValueError(), Verb.CANCEL),
        ("shutdown", Retry("on purpose"), Verb.RETRY),
        ("shutdown", Fail("on purpose"), Verb.FAIL),
    ],
)
async def test_what_cleaning_up_raises_spends_no_attempt(reason: str, error: Exception, verb: Verb) -> None:
    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)

    async def handler(task: Context) -> None:
        lease.end(reason)
        try:
            await asyncio.sleep(10)
        finally:
            raise error

    assert (await Runner(handler).run(claimed, lease)).verb is verb


async def test_a_backoff_that_breaks_is_the_default_one() -> None:
    def broken(attempts: int) -> float:
        raise ZeroDivisionError

    runner = Runner(returning(ValueError()), backoff=Backoff(curve=broken))
    assert 4.0 <= (await runner.run()).backoff_seconds <= 6.0


async def test_the_frames_are_the_handlers_own() -> None:
    def deep_down() -> None:
        raise ValueError("x")

    async def handler(task: Context) -> None:
        deep_down()

    line = deep_down.__code__.co_firstlineno
    frames = error_of(await Runner(handler).run())["frames"]
    assert frames == [
        f"test_handlers.py:{line + 1} in deep_down",
        f"test_handlers.py:{line + 4} in handler",
    ]


async def test_the_authors_frames_come_before_those_of_libraries() -> None:
    async def handler(task: Context) -> None:
        json.loads("{")

    outcome = await Runner(handler).run()
    frames = error_of(outcome)["frames"]
    assert frames[0].startswith("test_handlers.py:")
    assert frames[0].endswith(" in handler")
    assert frames[1].startswith("decoder.py:")
    assert outcome.fingerprint == fingerprint(
        "noop", "JSONDecodeError", error_of(outcome)["message"], ["test_handlers.py:handler"]
    ), "no line numbers, nothing of the library"


async def test_the_fact_of_a_failure_has_its_traceback() -> None:
    async def handler(task: Context) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("\x1b[2Jno " + "x" * 20_000) from error

    await Runner(handler).run()
    (signal,) = EMITTED
    assert isinstance(signal, AttemptFailed)
    assert 'json.loads("{")' in signal.exception
    assert "direct cause" in signal.exception
    assert "handlers.py" not in signal.exception.replace("test_handlers.py", ""), "it begins with the handler"
    assert "\x1b" not in signal.exception
    assert len(signal.exception) < 8100


async def test_an_end_that_was_asked_for_has_no_traceback() -> None:
    await Runner(returning(Fail("no"))).run()
    (signal,) = EMITTED
    assert isinstance(signal, AttemptFailed)
    assert signal.exception == ""


@pytest.mark.parametrize("attempt", [1, 2, 3])
async def test_retry_is_logged_as_a_failure_only_on_the_last_attempt(attempt: int) -> None:
    """Newcomer 12: a `Retry` that the handler asked for was a warning, as if something had gone wrong."""
    outcome = await Runner(returning(Retry("the shop is closed", after=1))).run(
        forged("gr-0", attempt=attempt)
    )
    assert outcome.verb is Verb.RETRY
    (signal,) = EMITTED
    is_last = attempt == 3
    assert (signal.event, signal.level) == (
        ("attempt_failed", "warning") if is_last else ("retry_requested", "info")
    )
    assert isinstance(signal, AttemptFailed if is_last else RetryRequested)
    assert (signal.message, signal.exception) == ("the shop is closed", "")


async def test_failure_is_stored_with_its_traceback_but_not_in_its_event(shared: Database) -> None:
    """Newcomer 15: a stored error had five frames, and the traceback was in the worker's log alone."""

    async def handler(task: Context) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("postgresql://ann:hunter2@db/shop \x00 \ud800 " + "x" * 20_000) from error

    owner = await claim(shared, (await submit(shared, max_attempts=2)).id)
    outcome = await Runner(handler).run(owner)
    await Finishes(shared, batch_limit=1).finish(Finish(owner, outcome, uuid4()))
    stored = (await read.tasks(shared, [owner.id], "default"))[owner.id].last_error
    assert stored is not None
    traceback = stored["traceback"]
    assert traceback.startswith("Traceback (most recent call last)")
    assert 'json.loads("{")' in traceback
    assert "hunter2" not in traceback, "redacted as the log is"
    assert "postgresql://ann:***@db/shop" in traceback
    assert len(traceback) < 8100
    (signal,) = EMITTED
    assert isinstance(signal, AttemptFailed)
    assert signal.exception == traceback
    event = (await log_of(shared, owner.id))[-1]
    assert event["kind"] == "evt.task.retry_scheduled"
    assert "Traceback" not in event["payload"]

    # another attempt, which ends without an error of its own
    await fall_due(shared, owner.id)
    owner = await claim(shared, owner.id)
    await lapse(shared, owner.id)
    await reap(shared, 10, None)
    dead = (await read.tasks(shared, [owner.id], "default"))[owner.id]
    assert dead.last_error is not None
    assert (dead.status, dead.last_error["class"]) == ("dead", "lease_expired")
    assert "traceback" not in dead.last_error, "it was that of another attempt"


@pytest.mark.parametrize(("after", "seconds"), [(7, 7.0), (timedelta(hours=1), 3600.0), (-1, 0.0)])
async def test_snooze_is_no_failure(after: Any, seconds: float) -> None:
    """Nothing is grouped, logged as an error or kept as one."""
    runner = Runner(returning(Snooze(after)))
    assert await runner.run() == Outcome(Verb.SNOOZE, backoff_seconds=seconds)


async def test_snooze_without_a_usable_delay_fails_the_attempt() -> None:
    outcome = await Runner(returning(Snooze(cast(Any, "soon")))).run()
    assert (outcome.verb, outcome.error_class) == (Verb.RETRY, "Snooze")


async def test_snoozed_attempts_do_not_count(shared: Database) -> None:
    task = await submit(shared, max_attempts=1)
    for attempt in (1, 2, 3):
        owner = await claim(shared, task.id)
        assert (owner.attempt, owner.counted_attempts) == (attempt, 1)
        assert (await finish(shared, owner, Verb.SNOOZE)).status == "retry_wait"
        await fall_due(shared, task.id)
    found = (await read.tasks(shared, [task.id], "default"))[task.id]
    assert (found.attempt, found.uncounted_attempts, found.last_error) == (3, 3, None)


async def test_failure_in_a_thread_is_stored_with_a_traceback_that_begins_with_the_handler() -> None:
    """Newcomer 15: a thread's began with the frames of the executor and of grns."""
    outcome = await Runner(returning(ValueError("no"), is_async=False)).run()
    assert outcome.error is not None
    first = json.loads(outcome.error)["traceback"].splitlines()[1]
    assert first.startswith(f'  File "{__file__}"')


async def test_failure_on_purpose_is_stored_without_a_traceback(shared: Database) -> None:
    """Newcomer 15: where a handler raises `Fail` itself, the traceback would say nothing."""
    owner = await claim(shared, (await submit(shared)).id)
    outcome = await Runner(returning(Fail("no such page"))).run(owner)
    await Finishes(shared, batch_limit=1).finish(Finish(owner, outcome, uuid4()))
    stored = (await read.tasks(shared, [owner.id], "default"))[owner.id].last_error
    assert stored is not None
    assert (stored["message"], "traceback" in stored) == ("no such page", False)


async def test_retry_because_of_an_error_is_logged_with_its_traceback() -> None:
    """Newcomer 12: the level of the line changes, and the cause stays in it."""

    async def handler(task: Context) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise Retry("no JSON yet", after=1) from error

    await Runner(handler).run()
    (signal,) = EMITTED
    assert isinstance(signal, RetryRequested)
    assert "JSONDecodeError" in signal.exception


# ---------------------------------------------------------------- what handlers are given


class Page(BaseModel):
    url: str
    depth: int = 1


@pytest.mark.parametrize(
    ("payload", "verb"), [('{"url": "x"}', Verb.SUCCEED), ("{}", Verb.FAIL), ('{"url": 5}', Verb.FAIL)]
)
async def test_a_payload_is_checked_against_its_model(payload: str, verb: Verb) -> None:
    async def handler(task: Context, page: Page) -> dict[str, Any]:
        return page.model_dump()

    claimed = forged("gr-0", attempt=1)
    claimed.payload = payload
    outcome = await Runner(handler).run(claimed)
    assert outcome.verb is verb
    if verb is Verb.SUCCEED:
        assert json.loads(outcome.result or "") == {"url": "x", "depth": 1}
    else:
        assert outcome.error_class == "bad_payload"
        assert error_of(outcome)["message"].startswith("payload.url: ")


async def test_a_thread_has_the_context_variables_of_its_task() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    main = threading.get_ident()

    def handler(task: Context) -> list[Any]:
        return [variable.get(), threading.get_ident() != main]

    variable.set("set")
    assert (await Runner(handler).run()).result == '["set",true]'


# ---------------------------------------------------------------- when handlers have to end


@pytest.mark.parametrize(
    ("reason", "verb"),
    [
        ("cancelled", Verb.CANCEL),
        ("shutdown", Verb.RELEASE),
        ("lost", Verb.RELEASE),
        ("deadline", Verb.RELEASE),
    ],
)
@pytest.mark.parametrize("is_before", [True, False], ids=["before", "meanwhile"])
async def test_a_handler_that_is_told_to_end_is_cancelled(reason: str, verb: Verb, is_before: bool) -> None:
    began, saw = asyncio.Event(), []

    async def handler(task: Context) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            saw.append(task.should_stop)
            raise

    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)
    if is_before:
        lease.end(reason)
    running = asyncio.create_task(Runner(handler).run(claimed, lease))
    if not is_before:
        await began.wait()
        lease.end(reason)
    assert (await running).verb is verb
    assert saw == ([] if is_before else [True]), "what has to end already is not begun"


async def test_a_handler_that_ends_well_although_told_to_end_has_succeeded() -> None:
    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)

    async def handler(task: Context) -> str:
        lease.end("shutdown")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            (current := asyncio.current_task()) and current.uncancel()
        return "done"

    assert (await Runner(handler).run(claimed, lease)).result == '"done"'


async def test_a_lease_that_is_lost_while_a_handler_still_cleans_up_disturbs_nobody() -> None:
    """Its time was up already: it cannot be cancelled twice, and whoever tells it must not break."""
    cleaning, may_end = asyncio.Event(), asyncio.Event()

    async def handler(task: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()

    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)
    running = asyncio.create_task(Runner(handler, timeout=0.01).run(claimed, lease))
    await cleaning.wait()
    lease.end("lost")
    may_end.set()
    assert (await running).verb is Verb.RELEASE


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_handler_that_takes_too_long_is_tried_again(is_async: bool) -> None:
    told = threading.Event()

    async def coroutine(task: Context) -> None:
        await asyncio.Event().wait()

    def function(task: Context) -> None:
        while not task.should_stop:
            pass
        told.set()

    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)
    outcome = await Runner(coroutine if is_async else function, timeout=0.05).run(claimed, lease)
    assert (outcome.verb, outcome.error_class) == (Verb.RETRY, "TimeoutError")
    assert "0.05 s" in error_of(outcome)["message"]
    if not is_async:
        assert lease.still_running is not None, "its slot stays taken until it has ended"
        await lease.still_running
        assert told.is_set()
        assert "handler_overran" in [signal.event for signal in EMITTED]


async def test_a_lost_lease_that_the_handler_met_writes_nothing() -> None:
    claimed = forged("gr-0", attempt=1)
    lease = Lease(claimed, 0, 1)
    await Runner(returning(LeaseLostError("in its transaction"))).run(claimed, lease)
    assert lease.is_lost


async def test_the_end_of_the_worker_is_no_outcome() -> None:
    began = asyncio.Event()

    async def handler(task: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(Runner(handler).run())
    await began.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


# ---------------------------------------------------------------- what is no handler


@pytest.mark.parametrize(
    "options",
    [{"max_attempts": 0}, {"max_attempts": 1001}, {"max_attempts": True}, {"max_attempts": 1.5},
     {"max_attempts": "3"}, {"timeout": 0}, {"timeout": -1}, {"timeout": True},
     {"timeout": float("nan")}, {"timeout": "5"}],
    ids=repr,
)  # fmt: skip
def test_options_of_handlers_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        Runner(returning(None), **options)
    assert raised.value.code == "bad_handler"


def test_a_task_type_has_one_handler() -> None:
    runner = Runner(returning(None))
    with pytest.raises(InvalidInputError, match="noop"):
        runner.pool.task("noop")(returning(None))
