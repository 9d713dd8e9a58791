"""What a handler gets to know of its task, and what it can do with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import structlog

from grns.errors import InvalidInputError, LeaseLostError, OutcomeUnknownError, UnavailableError
from grns.model.json import Limits, dumps
from grns.model.outcome import Claim, Finished, Outcome, Verb
from grns.postgres.database import Connection, Database
from grns.telemetry import failpoint
from grns.worker.finishes import Finish, finish_in
from grns.worker.leases import Lease


class Transaction:
    """A transaction that ends the task when it commits.

    `connection` is an asyncpg connection; `result` becomes the task's result (JSON).
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.result: Any = None


class Context:
    """One attempt at one task, as its handler sees it."""

    def __init__(
        self,
        claim: Claim,
        lease: Lease,
        *,
        agent_id: str,
        workspace: str,
        database: Database,
        result_limits: Limits,
    ) -> None:
        self._claim = claim
        self._lease = lease
        self._database = database
        self._result_limits = result_limits
        self.agent_id = agent_id
        self.workspace = workspace
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
        """The number of this attempt, from 1: it only grows, so it can fence writes elsewhere."""
        return self._claim.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Say whether a failure now ends the task."""
        return self._claim.counted_attempts >= self._claim.attempt_limit

    @property
    def lease_id(self) -> UUID:
        """The random id of this claim."""
        return self._claim.lease_id

    @property
    def trace_id(self) -> str:
        """The id that everything about this task shares."""
        return self._claim.trace_id

    @property
    def priority(self) -> int:
        """0 (critical) to 3 (background)."""
        return self._claim.priority

    @property
    def lost(self) -> bool:
        """Say whether this attempt should end: its lease is lost, its time is up, or it was cancelled.

        Async handlers are cancelled; a handler in a thread should look here now and then.
        """
        return self._lease.ended is not None

    @property
    def log(self) -> Any:
        """A structlog logger that carries the task's id, attempt and trace."""
        return structlog.get_logger(
            task_id=self.id, task_type=self.task_type, attempt=self.attempt, trace_id=self.trace_id
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction that ends the task as succeeded when it commits.

        The handler's own writes and the finish commit together or not at all; where the
        lease is lost, everything is undone and `LeaseLostError` raised. What fails after the
        block is logged; the outcome stands. Where Postgres goes away meanwhile, `UnavailableError` is
        raised: let
        it pass, and the attempt is given back without being counted, unless the commit had succeeded.
        """
        if self.finish is not None:
            raise InvalidInputError(
                "finished_already", "this task's transaction was opened already; there is one per attempt"
            )
        try:
            async with self._database.transaction() as connection:
                transaction = Transaction(connection)
                yield transaction
                finished = await self._finish_in(connection, transaction)
            failpoint.reach("worker.committed")
        except OutcomeUnknownError as error:
            self.outage = error
            raise  # it may have committed: the walk finds out
        except UnavailableError as error:
            self.finish, self.outage = None, error
            raise
        except BaseException:
            self.finish = None
            raise
        self.finished = finished

    async def _finish_in(self, connection: Connection, transaction: Transaction) -> Finished:
        if self._lease.is_lost:
            raise LeaseLostError(f"attempt {self.attempt} of task {self.id} has lost its lease")
        outcome = Outcome(Verb.SUCCEED, result=dumps(transaction.result, self._result_limits))
        self.finish = Finish(self._claim, outcome, uuid4(), is_unsure=True)
        finished = await finish_in(connection, self.finish)
        failpoint.reach("worker.finished_not_committed", connection.terminate)
        return finished
