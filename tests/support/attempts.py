"""Running attempts of a pool's tasks on a database, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from grns.client.client import Client
from grns.dead_letters.queue import DeadLetterQueue
from grns.model.json import Limits
from grns.model.outcome import Claim
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks.blobs import Blobs
from grns.telemetry.signal import Signal
from grns.worker.claims import Claimant, Claims
from grns.worker.context import Context
from grns.worker.executor import Executor
from grns.worker.finishes import Finishes
from grns.worker.handler_runner import HandlerRunner
from grns.worker.leases import Lease, LeaseManager, SharedLeaseTable
from grns.worker.output import OutputPublisher
from grns.worker.payloads import Payloads
from grns.worker.pool import Pool
from grns.worker.progress import ProgressStore
from grns.worker.results import ResultStore
from grns.worker.secret_value import SealedValues
from grns.worker.slots import Slots
from grns.worker.step_store import StepStore
from grns.worker.steps import AttemptSteps
from tests.support.store import claim, row_of


class Attempts:
    """Runs attempts one by one. `store` may be replaced before an attempt."""

    def __init__(
        self, database: Database, pool: Pool, table: SharedLeaseTable, client: Client | None
    ) -> None:
        self.database = database
        self.emitted: list[Signal] = []
        self.store = StepStore(database, batch_limit=10)
        self.progress = ProgressStore(database, batch_limit=10)
        self.output: OutputPublisher | None = None
        self.who = Claimant("worker-me", "default", pool.agent_type, dict.fromkeys(pool.handlers, 3), 15.0)
        self._client = client
        emit = self.emitted.append
        self.executor = Executor(
            claims=Claims(database, self.who, batch_limit=10),
            finishes=Finishes(database, batch_limit=10),
            leases=LeaseManager(table, lease_seconds=15.0, emit=emit),
            handlers=HandlerRunner(
                pool,
                make_context=self._context,
                threads=1,
                result_limits=Limits(),
                emit=emit,
                results=ResultStore(
                    Blobs(database, "default"),
                    database.vault,
                    least_bytes=Limits().document_bytes,
                    most=database.blob_rules.document,
                ),
            ),
            payloads=Payloads(database, "default"),
            slots=Slots(4),
            dead_letters=DeadLetterQueue(database, emit=emit),
            envelope_limits=load().envelope_limits,
            emit=emit,
        )

    async def run(self, task_id: str) -> str:
        """Claim a task, run its handler, and return the status of the task."""
        taken = await claim(self.database, task_id, who=self.who)
        await self.executor.run(taken)
        return str((await row_of(self.database, task_id))["status"])

    def _context(self, taken: Claim, lease: Lease) -> Context:
        steps = AttemptSteps(
            taken, self.store, Limits(), is_first=taken.attempt == 1,
            values=SealedValues(taken, self.progress.vault),
        )  # fmt: skip
        return Context(
            taken, lease, agent_id=self.who.agent_id, workspace="default", database=self.database,
            result_limits=Limits(), client=self._client, steps=lambda: steps,
            progress=self.progress, output=self.output,
        )  # fmt: skip


@contextmanager
def attempts_of(pool: Pool, database: Database, client: Client | None = None) -> Iterator[Attempts]:
    """Run attempts of a pool's tasks."""
    table, descriptor = SharedLeaseTable.create(8)
    try:
        yield Attempts(database, pool, table, client)
    finally:
        table.close()
        os.close(descriptor)
