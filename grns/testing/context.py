"""Run one attempt of a task without servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, TypeVar
from uuid import uuid4

from grns.client.client import Client
from grns.client.handle import TaskHandle
from grns.errors import InvalidInputError, TaskEndedError, WaitTimeoutError
from grns.model.blob import BlobRules
from grns.model.form import answer_of
from grns.model.found_event import FoundEvent
from grns.model.json import Limits, dumps, jsonable
from grns.model.outcome import Claim, Finished
from grns.model.question import PersonAnswer, Question
from grns.worker.async_only import async_only
from grns.worker.context import Context, Transaction
from grns.worker.handler import Handler
from grns.worker.handler_runner import HandlerRunner
from grns.worker.leases import Lease
from grns.worker.secret_value import SealedValues
from grns.worker.step import RecordedStep
from grns.worker.step_store import StepStore
from grns.worker.steps import AttemptSteps

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


class LocalContext(Context):
    """A context without servers; `transaction()` uses the connection of the test.

    Attributes:
        result: what was passed to `tx.complete`, after the transaction has committed.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        state: Any = None,
        connection: Any = None,
        client: Client | None = None,
        results: Mapping[str, Any] | None = None,
        steps: dict[str, Any] | None = None,
        signals: Mapping[str, Any] | None = None,
        last_checkpoint: Any = None,
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        self._local_lease = Lease(claim, 0, 1)
        super().__init__(
            claim,
            self._local_lease,
            agent_id="test",
            workspace=claim.workspace,
            database=None,  # type: ignore[arg-type]  # `transaction` does without
            result_limits=Limits(),
            client=client,
            steps=lambda: AttemptSteps(
                claim, LocalStepStore(steps), Limits(), is_first=False, values=SealedValues(claim, None)
            ),
        )
        self.state = state
        self.last_checkpoint = last_checkpoint
        self.result: Any = None
        self._connection = connection
        self._results = dict(results or {})
        self._signals = dict(signals or {})
        self._answers = dict(answers or {})

    @async_only
    async def results(self) -> dict[str, Any]:
        """Return the results that the test passed."""
        return dict(self._results)

    @async_only
    async def step_transaction(
        self, name: str, function: Callable[..., Awaitable[Any]], /, *arguments: Any, **named: Any
    ) -> Any:
        """Run a step in a transaction on the test's connection. InvalidInputError if the test passed none."""

        @wraps(function)
        async def call() -> Any:
            connection = self._own_connection("ctx.step_transaction()")
            async with connection.transaction():
                return await function(connection, *arguments, **named)

        return await self.step(name, call)

    @async_only
    async def sleep(self, duration: float | timedelta) -> None:
        """Return at once."""

    @async_only
    async def sleep_until(self, time: datetime) -> None:
        """Return at once."""

    @async_only
    async def wait_for_signal(self, name: str, *, timeout: float | timedelta | None = None) -> Any:
        """Return the value that the test passed; WaitTimeoutError if it passed none, with a timeout."""
        if name in self._signals:
            return self._signals[name]
        if timeout is not None:
            raise WaitTimeoutError(f"no signal {name} came in time")
        raise InvalidInputError(
            "no_signal", f"ctx.wait_for_signal({name!r}): pass signals={{{name!r}: …}} to grns.testing"
        )

    @async_only
    async def wait_for_event(
        self,
        kind: str,
        where: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> FoundEvent:
        """Return an event with the payload that the test passed as the signal of this name."""
        if kind in self._signals:
            payload = self._signals[kind]
            return FoundEvent(1, kind, payload.get("task_id"), payload, datetime.now(UTC))
        await self.wait_for_signal(kind, timeout=timeout)
        raise AssertionError

    async def _ask(
        self, name: str, asked: Question, seconds: float | None, default: Any, read: Callable[[Any], Any]
    ) -> PersonAnswer[Any]:
        """Return the answer that the test passed; the default, or WaitTimeoutError, without one."""
        if name in self._answers:
            given = self._answers[name]
            answer = {"approved": given} if asked.kind == "approval" else jsonable(given)
            return PersonAnswer(read(answer_of(asked.form, answer)), asked.digest, "test")
        if seconds is None:
            raise InvalidInputError("no_answer", f"pass answers={{{name!r}: …}} to grns.testing")
        if default is None:
            raise WaitTimeoutError(f"no one has answered {asked.title!r} in time")
        return PersonAnswer(default, asked.digest, is_timed_out=True)

    @async_only
    async def fan_out(
        self, name: str, task: Any, payloads: Iterable[Any], /, **options: Any
    ) -> list[TaskHandle[Any]]:
        """Submit a task for each payload to the test's client, such as that of `grns.testing.eager()`."""

        async def submit() -> list[str]:
            return [(await self.client.submit(task, payload, **options)).id for payload in payloads]

        handler = None if isinstance(task, str) else task
        return [self.client.handle(task_id, handler) for task_id in await self.step(name, submit)]

    @async_only
    async def join(
        self, tasks: Sequence[TaskHandle[Any]], /, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Return the results of tasks, which have run when they were submitted."""
        found: list[Any] = []
        for task in tasks:
            try:
                found.append(await task.result(timeout=0))
            except TaskEndedError as error:
                if not return_exceptions:
                    raise
                found.append(error)
        return found

    @async_only
    async def wait(
        self,
        tasks: Sequence[TaskHandle[Any]],
        /,
        *,
        count: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> tuple[list[TaskHandle[Any]], list[TaskHandle[Any]]]:
        """Return the tasks, which have run when they were submitted."""
        return list(tasks), []

    def stop(self, reason: str = "cancelled") -> None:
        """Ask the attempt to stop: `ctx.should_stop` is true, and `ctx.stop_reason` is the reason."""
        self._local_lease.end(reason)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction on the test's connection. Raises InvalidInputError if the test passed none."""
        connection = self._own_connection("ctx.transaction()")
        self._enter_transaction()
        try:
            async with connection.transaction():
                async with AsyncExitStack() as resources:
                    transaction = Transaction(connection, resources)
                    yield transaction
                dumps(transaction.result, BlobRules().document)
        finally:
            self._is_in_transaction = False
        self.finished, self.result = Finished("succeeded"), transaction.result

    def _own_connection(self, name: str) -> Any:
        if self._connection is None:
            raise InvalidInputError(
                "no_connection", f"{name} needs a connection: pass connection= to grns.testing"
            )
        return self._connection


class LocalStepStore(StepStore):
    """Steps without a server: by name, with their values."""

    def __init__(self, recorded: dict[str, Any] | None) -> None:
        self.recorded = {} if recorded is None else recorded

    async def read(self, claim: Claim) -> list[RecordedStep]:
        """Return the steps."""
        return [RecordedStep(name, "step", json.dumps(value)) for name, value in self.recorded.items()]

    async def record(self, claim: Claim, name: str, kind: str, value: str) -> str:
        """Record a step, and return its value."""
        return json.dumps(self.recorded.setdefault(name, json.loads(value)))


def context(
    payload: Any = None,
    *,
    task_type: str = "test",
    attempt: int = 1,
    max_attempts: int = 3,
    state: Any = None,
    connection: Any = None,
    client: Client | None = None,
    results: Mapping[str, Any] | None = None,
    steps: dict[str, Any] | None = None,
    signals: Mapping[str, Any] | None = None,
    last_checkpoint: Any = None,
    answers: Mapping[str, Any] | None = None,
) -> LocalContext:
    """Return a context with which a test calls a handler.

    Args:
        payload: what `ctx.payload` returns; a JSON object.
        task_type: name of the task type.
        attempt: number of the attempt.
        max_attempts: maximum number of attempts.
        state: what `ctx.state` returns.
        connection: asyncpg connection for `ctx.transaction()`.
        client: what `ctx.client` returns, such as that of `grns.testing.eager()`.
        results: what `ctx.results()` returns.
        steps: values of the steps that earlier attempts have recorded, by name; those of this one are added.
        signals: values that `ctx.wait_for_signal` returns, by name. Without one it times out, if it can.
        answers: what people answer, by the name of the question: the value of `ctx.ask_person` or
            `ctx.approve`. Without one the time passes, if there is a time.
        last_checkpoint: what `ctx.last_checkpoint` is. What the handler reports is in `ctx.reported`.

    Example:
        ctx = grns.testing.context(attempt=3)
        assert await fetch_page(Page(url="https://example.org"), ctx) == {"status": 200}
    """
    text = dumps({} if payload is None else payload, BlobRules().document)
    claim = forged(task_type, text, attempt, max_attempts)
    return LocalContext(
        claim, state=state, connection=connection, client=client, results=results, steps=steps,
        signals=signals, last_checkpoint=last_checkpoint, answers=answers,
    )  # fmt: skip


async def run(
    handler: Handler[PayloadT, ResultT],
    payload: PayloadT | None = None,
    *,
    attempt: int = 1,
    max_attempts: int | None = None,
    state: Any = None,
    connection: Any = None,
    client: Client | None = None,
    results: Mapping[str, Any] | None = None,
    steps: dict[str, Any] | None = None,
    signals: Mapping[str, Any] | None = None,
    last_checkpoint: Any = None,
    answers: Mapping[str, Any] | None = None,
) -> ResultT:
    """Run one attempt of a task as a worker does, and return its result.

    The payload is validated and becomes JSON on the way, dependencies are resolved, and the result becomes
    JSON and is validated. The lifespan of the pool is entered unless you pass a `state`;
    `connection`, `client`, `results`, `steps`, `signals`, `last_checkpoint` and `answers` are those of
    `context`.

    Raises:
        InvalidInputError: the payload does not fit the handler.
        Exception: what the handler raised, `grns.Retry`, `grns.Snooze` and `grns.Fail` included.

    Example:
        result = await grns.testing.run(fetch_page, Page(url="https://example.org"))
    """
    text = dumps(handler.call_signature.payload_text(payload, handler.secret_paths), BlobRules().document)
    claim = forged(handler.task_type, text, attempt, max_attempts or handler.max_attempts or 3)
    local = LocalContext(
        claim, connection=connection, client=client, results=results, steps=steps, signals=signals,
        last_checkpoint=last_checkpoint, answers=answers,
    )  # fmt: skip
    async with local_runner(handler, local, threads=1, has_lifespan=state is None) as runner:
        text = await runner.call(handler, local, local._local_lease, state=state)
    value = local.result if local.finished is not None else json.loads(text)
    adapter = handler.call_signature.result
    result: ResultT = value if adapter is None else adapter.validate_python(value)
    return result


@asynccontextmanager
async def local_runner(
    handler: Handler[Any, Any], local: LocalContext, *, threads: int | Executor, has_lifespan: bool = True
) -> AsyncIterator[HandlerRunner]:
    """Yield what runs a handler with a context, within the lifespans of its pools."""
    *_, root = handler.pool.lineage()
    runner = HandlerRunner(
        root, make_context=lambda _claim, _lease: local, threads=threads, result_limits=Limits(),
        emit=lambda _: None,
    )  # fmt: skip
    try:
        if has_lifespan:
            await runner.start()
        yield runner
    finally:
        runner.close()
        await runner.stop()


def forged(task_type: str, payload: str, attempt: int, max_attempts: int) -> Claim:
    """Return a claim that no database gave out."""
    return Claim(
        id=f"test-{uuid4().hex[:12]}",
        task_type=task_type,
        priority=2,
        payload=payload,
        attempt=attempt,
        attempt_limit=max_attempts,
        uncounted_attempts=0,
        lease_id=uuid4(),
        trace_id=uuid4().hex,
        causation_id=None,
        queued_seconds=0.0,
        expires_at=float("inf"),
    )
