"""What a handler can read of its task, and do with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

import structlog

from grns.errors import (
    ContendedError,
    GrnsError,
    InvalidInputError,
    LeaseLostError,
    OutcomeUnknownError,
    RateLimitedError,
    UnavailableError,
)
from grns.model.json import ANY_SIZE, Limits, dumps, jsonable, loads_stored
from grns.model.outcome import Claim, Finished, Outcome, Verb
from grns.model.secret import Path, check_clear
from grns.postgres.database import Connection, Database, run
from grns.tasks.blobs import Blobs, read_result
from grns.telemetry import failpoint
from grns.worker.async_only import async_only, check_async
from grns.worker.finishes import Finish, finish_in
from grns.worker.leases import Lease
from grns.worker.mail_methods import MailMethods
from grns.worker.output import AttemptOutput, OutputPublisher
from grns.worker.person_methods import PersonMethods
from grns.worker.progress import AttemptProgress, ProgressStore
from grns.worker.report_methods import ReportMethods
from grns.worker.results import result_in
from grns.worker.step_methods import StepMethods
from grns.worker.steps import AttemptSteps
from grns.worker.task_logger import TaskLogger

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from grns.client.client import Client


_FLUSHES, _FLUSH_PAUSE_SECONDS = 20, 0.02


class Transaction:
    """The transaction of `Context.transaction`: its commit also completes the task.

    `connection` is an asyncpg connection.
    """

    def __init__(self, connection: Connection, resources: AsyncExitStack) -> None:
        self.connection = connection
        self.result: Any = None
        self._resources = resources

    async def session(self, **options: Any) -> AsyncSession:
        """Open a SQLAlchemy session in this transaction. The end of the transaction commits it.

        Args:
            options: those of `sqlalchemy.ext.asyncio.AsyncSession`, such as `expire_on_commit=False`.

        Example:
            async with ctx.transaction() as tx:
                session = await tx.session()
                session.add(Invoice(order_id=order.id))
        """
        from grns.postgres.lent_session import lent_session

        return await self._resources.enter_async_context(lent_session(self.connection, options))

    def complete(self, result: Any) -> None:
        """Set the result with which the commit completes the task. Defaults to None.

        Args:
            result: a JSON value, a pydantic model or a dataclass.
        """
        self.result = jsonable(result)


class _AsyncOnly(AbstractAsyncContextManager[Transaction]):
    """Opens a transaction with `async with`; with a plain `with`, says what to do instead."""

    def __init__(self, opened: AbstractAsyncContextManager[Transaction]) -> None:
        self._opened = opened

    async def __aenter__(self) -> Transaction:
        return await self._opened.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._opened.__aexit__(*error)

    def __enter__(self) -> NoReturn:
        raise InvalidInputError(
            "bad_handler",
            "ctx.transaction() is for `async def` handlers: use `async with`. In a plain handler, such as one"
            " that uses Django's ORM, write ctx.id into a unique column: a second run then changes nothing",
        )

    def __exit__(self, *_: object) -> None:
        """Exist, so that `with` asks `__enter__`."""


# What is called otherwise here than in other frameworks.
_ELSEWHERE = {
    "retry": "raise grns.Retry(after=…)",
    "request": "ctx.id, ctx.attempt, ctx.task_type or ctx.payload",
    "retries": "ctx.attempt, which begins with 1",
    "update_state": "ctx.progress(percent, step)",
    "logger": "ctx.log",
    "session": "await tx.session() in ctx.transaction()",
    "submit": "ctx.client.submit(…)",
}


class Context(StepMethods, MailMethods, PersonMethods, ReportMethods):
    """One attempt of a task, as its handler sees it."""

    def __init__(
        self,
        claim: Claim,
        lease: Lease,
        *,
        agent_id: str,
        workspace: str,
        database: Database,
        result_limits: Limits,
        client: Client | None = None,
        steps: Callable[[], AttemptSteps] | None = None,
        progress: ProgressStore | None = None,
        output: OutputPublisher | None = None,
    ) -> None:
        self._claim = claim
        self._steps: AttemptSteps | None = None  # most handlers have none: made when it is asked for
        self._make_steps = steps
        self._progress_store = progress
        self._progress: AttemptProgress | None = None  # as of steps
        self._output_publisher = output
        self._output: AttemptOutput | None = None
        self.last_checkpoint: Any = None
        """What an earlier attempt passed to `checkpoint` last; None if none did."""
        self._lease = lease
        self._database = database
        self._result_limits = result_limits
        self._client = client
        self.agent_id = agent_id
        self.workspace = workspace
        self.state: Any = None
        """What the pool's lifespan yielded."""
        self.deadline: datetime | None = None
        """When this attempt times out, in UTC; None without a timeout."""
        self._payload: Any = None
        self._secret_result: Sequence[Path] = ()
        self._has_begun = False
        self._is_in_transaction = False
        self.finish: Finish | None = None
        self.finished: Finished | None = None
        # Set where Postgres was away during the handler's transaction: not the handler's fault.
        self.outage: UnavailableError | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self._claim.id

    @property
    def task_type(self) -> str:
        """The task's type."""
        return self._claim.task_type

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1. It only grows, so it can fence writes in other systems."""
        return self._claim.attempt

    @property
    def max_attempts(self) -> int:
        """Maximum number of attempts that count."""
        return self._claim.attempt_limit

    @property
    def payload(self) -> Any:
        """The payload as the handler takes it: validated if its parameter is annotated, otherwise a dict."""
        if self._payload is None:
            self._payload = loads_stored(self._claim.payload)
        return self._payload

    @property
    def is_last_attempt(self) -> bool:
        """Whether the task ends if this attempt fails."""
        return self._claim.counted_attempts >= self._claim.attempt_limit

    @property
    def lease_id(self) -> UUID:
        """Random id of this claim."""
        return self._claim.lease_id

    @property
    def trace_id(self) -> str:
        """Trace of the task: the same in its messages, events and logs."""
        return self._claim.trace_id

    @property
    def priority(self) -> int:
        """Priority, 0 (critical) to 3 (background)."""
        return self._claim.priority

    @property
    def should_stop(self) -> bool:
        """Whether this attempt should end; `stop_reason` says why.

        Async handlers are cancelled. A handler in a thread should check it periodically.
        """
        return self._lease.ended is not None

    @property
    def stop_reason(self) -> str | None:
        """Why this attempt should end: `cancelled`, `timeout`, `shutdown`, `lost` or `deadline`.

        The last two are about the lease: it is lost, or it is about to be.
        """
        return self._lease.ended

    def _begin(
        self,
        payload: Any,
        *,
        state: Any,
        timeout_seconds: float | None,
        secret_result: Sequence[Path] = (),
    ) -> None:
        """Note what the handler gets, and where its result is secret."""
        self._payload, self.state, self._has_begun = payload, state, True
        self._secret_result = secret_result
        if timeout_seconds is not None:
            self.deadline = datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=timeout_seconds)

    if not TYPE_CHECKING:  # or a type checker would accept any name

        def __getattr__(self, name: str) -> Any:
            """Say what is called otherwise here than in other frameworks."""
            hint = _ELSEWHERE.get(name)
            raise AttributeError(
                f"the context has no {name!r}" + (f": write {hint}" if hint else ""), name=name, obj=self
            )

    @property
    def client(self) -> Client:
        """A client of the task's workspace, in an `async def` handler.

        What it submits belongs to the trace of this task.

        Raises:
            InvalidInputError: `bad_handler`: the handler is a plain function, which needs a
                `grns.sync.Client`.
        """
        check_async("ctx.client", "in a plain one use a grns.sync.Client, such as that of your web process")
        if self._client is None:
            raise InvalidInputError("no_client", "pass a client to testing.context(client=...)")
        return self._client

    async def _document(self, value: Any) -> Any:
        return await Blobs(self._database, self.workspace).document(value)

    async def _send_mail(
        self,
        type: str,
        payload: Mapping[str, Any] | None,
        *,
        to: str,
        about: str | None,
        message_id: str,
        expires: float,
    ) -> None:
        about = about or self.id
        await self.client.mail.send(
            type, payload, to=to, about=about, message_id=UUID(message_id), expires=expires
        )

    @async_only
    async def results(self) -> dict[str, Any]:
        """Return the results of the tasks that this one needs, in an `async def` handler.

        Only of those that have succeeded, by name, in the order in which they were submitted.

        Raises:
            InvalidInputError: `bad_handler`: the handler is a plain function.

        Example:
            pages = (await ctx.results()).values()
        """
        rows = await self._database.run("read_results", self.id, self.workspace)
        return {row["name"]: await read_result(self._database, row["result"], self.workspace) for row in rows}

    @property
    def log(self) -> Any:
        """structlog logger that is bound to the task's id, type, attempt and trace.

        Its lines are also kept with the task: `grns task logs`.
        """
        logger = structlog.get_logger(
            task_id=self.id, task_type=self.task_type, attempt=self.attempt, trace_id=self.trace_id
        )
        progress = self._own_progress()
        return TaskLogger(
            logger, progress.log, progress.least_level, find_scrubber=lambda: self._claim.scrubber
        )

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction whose commit also completes the task, in an `async def` handler.

        Your writes and the outcome commit together or not at all. Errors after the block are logged; the
        outcome stays.

        Raises:
            InvalidInputError: this attempt has already opened a transaction (`finished_already`), or it is
                opened with a plain `with` (`bad_handler`).
            LeaseLostError: the lease is lost; everything is rolled back.
            UnavailableError: Postgres went away. Let it propagate: the attempt is given back and does not
                count, unless the commit had succeeded.

        Example:
            async with ctx.transaction() as tx:
                await tx.connection.execute("update orders set state = 'paid' where id = $1", order_id)
                tx.complete({"order": order_id})
        """
        return _AsyncOnly(self._transaction())

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        self._enter_transaction()
        try:
            async with self._database.transaction() as connection:
                await run(connection, "name_attempt", self.trace_id, str(self._claim.causation_id or ""))
                async with AsyncExitStack() as resources:
                    transaction = Transaction(connection, resources)
                    yield transaction
                finished = await self._finish_in(connection, transaction)
            failpoint.reach("worker.committed")
        except OutcomeUnknownError as error:
            self.outage = error
            raise  # it may have committed: the walk finds out
        except RateLimitedError:  # Postgres is well, and the workspace is full
            self.finish = None
            raise
        except UnavailableError as error:
            self.finish, self.outage = None, error
            raise
        except BaseException:
            self.finish = None
            raise
        finally:
            self._is_in_transaction = False
        self.finished = finished

    def _enter_transaction(self) -> None:
        if self._is_in_transaction or self.finish is not None or self.finished is not None:
            raise InvalidInputError(
                "finished_already", "this task's transaction was opened already; there is one per attempt"
            )
        self._is_in_transaction = True

    async def _flush(self, progress: AttemptProgress) -> None:
        """Write what was reported, unless the row stays locked; the guard of the outcome tells of a loss."""
        with suppress(GrnsError):
            for _ in range(_FLUSHES):
                try:
                    await progress.flush()
                    break
                except ContendedError:  # such as by the renewal of its lease
                    await asyncio.sleep(_FLUSH_PAUSE_SECONDS)

    async def _finish_in(self, connection: Connection, transaction: Transaction) -> Finished:
        if self._lease.is_lost:
            raise LeaseLostError(f"attempt {self.attempt} of task {self.id} has lost its lease")
        if self._progress is not None:
            await self._flush(self._progress)
        self._send_output()
        if self._secret_result:
            check_clear(dumps(transaction.result, self._result_limits))
            hidden = self._database.vault.hide(transaction.result, self._secret_result, self.workspace)
            text = dumps(hidden, ANY_SIZE)
        else:
            rules, limits = self._database.blob_rules, self._result_limits
            text = await result_in(connection, transaction.result, limits, rules, self.workspace)
        outcome = Outcome(Verb.SUCCEED, result=text)
        self.finish = Finish(self._claim, outcome, uuid4(), is_unsure=True)
        finished = await finish_in(connection, self.finish)
        failpoint.reach("worker.finished_not_committed", connection.terminate)
        return finished
