"""Wiring of a worker."""

from __future__ import annotations

import os
import secrets

from grns.bootstrap import heartbeat, tools
from grns.bootstrap.app import VERSION, App
from grns.dead_letters.queue import DeadLetterQueue
from grns.model.log_line import LEVELS
from grns.model.outcome import Claim
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.worker.claims import Claimant, Claims
from grns.worker.context import Context
from grns.worker.declared import publish_task_types, put_declared, put_declared_limits
from grns.worker.executor import Executor
from grns.worker.finishes import Finishes
from grns.worker.handler_runner import HandlerRunner
from grns.worker.heartbeat_process import HeartbeatProcess, table_size
from grns.worker.leases import Lease, LeaseManager, SharedLeaseTable
from grns.worker.order_watch import OrderWatch
from grns.worker.output import OutputPublisher
from grns.worker.pause_watch import PauseWatch
from grns.worker.payloads import Payloads
from grns.worker.poller import Poller
from grns.worker.pool import Pool
from grns.worker.progress import ProgressStore
from grns.worker.results import ResultStore
from grns.worker.router import CommandRouter
from grns.worker.secret_value import SealedValues
from grns.worker.slots import Slots
from grns.worker.step_store import StepStore
from grns.worker.steps import AttemptSteps
from grns.worker.worker import Worker


def worker(
    app: App, pool: Pool, database: Database, transport: JetStream, handlers_database: Database
) -> Worker:
    """Return a worker of one pool."""
    return _WorkerFactory(app, pool, database, transport, handlers_database).worker()


class _WorkerFactory:
    """Wires one worker; its parts share what the constructor makes."""

    def __init__(
        self, app: App, pool: Pool, database: Database, transport: JetStream, handlers_database: Database
    ) -> None:
        settings = app.settings
        self.settings = settings
        self.emit, self.spans = app.telemetry.emit, app.spans
        self.pool, self.database, self.transport = pool, database, transport
        self.handlers_database = handlers_database
        self.claimant = Claimant(
            agent_id=f"{pool.agent_type}-{secrets.token_hex(8)}",
            workspace=settings.workspace,
            agent_type=pool.agent_type,
            handled={name: handler.max_attempts for name, handler in pool.handlers.items()},
            lease_seconds=settings.lease_seconds,
            agent=settings.agent,
        )
        self.slots = Slots(settings.concurrency)
        self.table, self.table_descriptor = SharedLeaseTable.create(table_size(settings.concurrency))
        self.leases = LeaseManager(self.table, lease_seconds=settings.lease_seconds, emit=self.emit)
        self.claims = Claims(database, self.claimant, batch_limit=settings.claim_batch, keeping=self.leases)
        self.result_limits = settings.result_limits
        self.steps = StepStore(database, batch_limit=settings.claim_batch)
        self.progress = ProgressStore(
            database, batch_limit=settings.claim_batch, least_level=LEVELS[settings.task_log_level.upper()]
        )
        self.output = OutputPublisher(transport, workspace=settings.workspace, emit=self.emit)
        self.client = tools.client(app, database, transport, handlers_database, actor=self.claimant.agent_id)
        self.handlers = HandlerRunner(
            pool,
            make_context=self.context,
            threads=settings.concurrency + 8,
            result_limits=self.result_limits,
            emit=self.emit,
            results=ResultStore(
                self.client.blobs,
                database.vault,
                least_bytes=settings.result_max_bytes,
                most=database.blob_rules.document,
            ),
        )
        self.executor = Executor(
            claims=self.claims,
            finishes=Finishes(database, batch_limit=settings.claim_batch),
            leases=self.leases,
            handlers=self.handlers,
            slots=self.slots,
            payloads=Payloads(database, settings.workspace),
            dead_letters=DeadLetterQueue(database, emit=self.emit),
            envelope_limits=settings.envelope_limits,
            emit=self.emit,
            spans=self.spans,
        )

    def worker(self) -> Worker:
        """Return the worker."""
        return Worker(
            claimant=self.claimant,
            database=self.database,
            transport=self.transport,
            heartbeat=self.heartbeat_process(),
            leases=self.leases,
            handlers=self.handlers,
            executor=self.executor,
            slots=self.slots,
            progress=self.progress,
            output=self.output,
            make_poller=self.poller,
            make_router=self.router,
            make_pause_watch=self.pause_watch,
            make_order_watch=self.order_watch,
            declare=self.declare,
            claim_batch=self.settings.claim_batch,
            grace_seconds=self.settings.shutdown_grace_seconds,
            version=VERSION,
            emit=self.emit,
        )

    def context(self, claim: Claim, lease: Lease) -> Context:
        """Return the context of a handler."""
        return Context(
            claim,
            lease,
            agent_id=self.claimant.agent_id,
            workspace=self.claimant.workspace,
            database=self.handlers_database,
            result_limits=self.result_limits,
            client=self.client,
            steps=lambda: AttemptSteps(
                claim,
                self.steps,
                self.result_limits,
                is_first=claim.attempt == 1,
                values=SealedValues(claim, self.database.vault),
            ),
            progress=self.progress,
            output=self.output,
        )

    def heartbeat_process(self) -> HeartbeatProcess:
        """Return the heartbeat process of the worker."""
        config = heartbeat.HeartbeatConfig(
            self.table_descriptor, self.table.slots, self.claimant.agent_id, os.getpid(), self.settings
        )
        return HeartbeatProcess(
            table_descriptor=self.table_descriptor,
            module=heartbeat.__name__,
            orders=config.dump(),
            lease_seconds=self.settings.lease_seconds,
            beats=lambda: self.table.beats,
            emit=self.emit,
        )

    def poller(self, worker: Worker) -> Poller:
        """Return the worker's fallback poller."""
        settings = self.settings
        return Poller(
            claims=self.claims,
            claimer=self.executor,
            slots=self.slots,
            start=worker.prefetcher.start,
            start_urgent=worker.start,
            last_delivery_at=lambda: worker.prefetcher.last_delivery_at,
            is_broker_failing=lambda: worker.is_broker_failing,
            after_seconds=settings.poll_after_seconds,
            longest_pause_seconds=settings.poll_max_seconds,
            busy_age_seconds=settings.poll_busy_age_seconds,
            emit=self.emit,
            is_bounded=self.claimant.agent is not None,
        )

    def router(self, worker: Worker) -> CommandRouter:
        """Return the router of the shared execute subject."""
        return CommandRouter(
            claimer=self.executor,
            database=self.database,
            claimant=self.claimant,
            slots=self.slots,
            start=worker.prefetcher.start,
            emit=self.emit,
        )

    async def declare(self) -> None:
        """Put the pool's limits and schedules in place."""
        await publish_task_types(
            self.database,
            self.pool.handlers.values(),
            workspace=self.claimant.workspace,
            agent_type=self.claimant.agent_type,
        )
        await put_declared_limits(
            self.database,
            self.pool.limits,
            workspace=self.claimant.workspace,
            actor=self.claimant.agent_id,
        )
        await put_declared(
            self.database,
            self.pool.schedules,
            workspace=self.claimant.workspace,
            actor=self.claimant.agent_id,
            limits=self.settings.payload_limits,
        )

    def order_watch(self, worker: Worker) -> OrderWatch:
        """Return the watch of what the worker's agent is told to do."""
        return OrderWatch(
            database=self.database,
            claimant=self.claimant,
            slots=self.slots,
            stop=worker.stop,
            emit=self.emit,
        )

    def pause_watch(self, worker: Worker) -> PauseWatch:
        """Return the watch of the pauses of the worker's pool."""
        return PauseWatch(
            database=self.database,
            claimant=self.claimant,
            slots=self.slots,
            on_resumed=worker.catch_up,
            emit=self.emit,
        )
