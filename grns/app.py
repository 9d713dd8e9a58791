"""The only place where things are put together."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from grns import nudge_url
from grns.actor import check as check_actor
from grns.agent_claims import AgentClaims
from grns.agent_nudge import Nudges, Post
from grns.agent_writes import AgentWrites
from grns.attempt import Reception, Walk
from grns.attendance import Attendance
from grns.clerk import Clerk
from grns.client import Client
from grns.context import Context
from grns.counter import Counter
from grns.daemon import Service
from grns.door import FrontDoor
from grns.errors import BadInput, SettingsError
from grns.examination import Examination
from grns.explanation import Explainer
from grns.floor import Floor
from grns.graveyard import Graveyard
from grns.handlers import Handlers
from grns.janitor import Janitor
from grns.keeper import Keeper, is_running
from grns.keeper_process import KeeperProcess, book_size
from grns.lease import Lease, LeaseBook, Leases
from grns.operation_runner import OperationRunner
from grns.outcome import Claim
from grns.pause import Pauses
from grns.pause_watch import PauseWatch
from grns.pool import Pool
from grns.post import Poster, believing
from grns.reaper import Reaper
from grns.relay import Relay
from grns.request_desk import RequestDesk
from grns.retry_scheduler import RetryScheduler
from grns.settings import Settings, load, reveal
from grns.slots import Slots
from grns.store.claim import Claimant, Claims
from grns.store.database import Database
from grns.store.finish import Finishes
from grns.store.order import Orders
from grns.telemetry.emit import Leaf, Telemetry
from grns.telemetry.facts.bus import TransportChanged, TransportFailing, TransportReady
from grns.telemetry.logger import LoggerLeaf
from grns.telemetry.spans import NO_SPANS, Spans
from grns.transport.base import Transport
from grns.transport.jetstream import JetStream
from grns.triage import Triage
from grns.waiting_room import Pace, WaitingRoom
from grns.webhook_sender import WebhookSender
from grns.worker import Worker

if TYPE_CHECKING:
    from grns.api.desk import Desk
    from grns.api.server import ApiServer

VERSION = version("grns")

# How long an answer to a handler's own statement may take.
_HANDLERS_ANSWER_SECONDS = 60.0
_DAY_SECONDS = 86_400.0
# Who asks, as the log has it of what came over the bus: its sender is known to the broker alone.
_BUS = "nats"
_GOOD_NEWS = frozenset({"broker_connected", "stream_made", "durable_made"})


@dataclass
class App:
    """One process: its settings, its telemetry, and the connections that its services share."""

    settings: Settings
    leaves: tuple[Leaf, ...] = ()
    spans: Spans = NO_SPANS
    telemetry: Telemetry = field(init=False)

    def __post_init__(self) -> None:
        self.telemetry = Telemetry(*self.leaves)

    def trace(self, service: str, *, is_guest: bool = False) -> None:
        """Make spans from now on, if the settings name a collector; `SettingsError` if that cannot be.

        A guest is in somebody else's program, and changes nothing there.
        """
        if self.settings.otlp_endpoint is None:
            return
        try:
            from grns.telemetry.otel import open_spans, take_over
        except ModuleNotFoundError as error:
            missing = SettingsError(f"GRNS_OTLP_ENDPOINT is set, and {error.name} is not installed")
            missing.add_note("pip install 'grns[otlp]'")
            raise missing from error
        endpoint = self.settings.otlp_endpoint.get_secret_value()
        if not endpoint.startswith(("http://", "https://")):
            raise SettingsError("GRNS_OTLP_ENDPOINT is no URL of HTTP, as http://127.0.0.1:4318")
        self.spans = spans = open_spans(endpoint, service=service)
        if not is_guest:
            take_over(spans, self.telemetry.emit)

    def database(self, name: str, *, size: int | None = None) -> Database:
        """Return a pool of connections, not yet open."""
        settings = self.settings
        return Database(
            settings.require_database_url(),
            name=f"{name} {os.getpid()}",  # pg_stat_activity knows no process id of ours
            size=size or settings.database_pool_size,
            is_tuned=settings.database_tuned,
            answer_seconds=max(2.0, settings.lease_seconds / 3),
        )

    def handlers_database(self) -> Database:
        """Return the pool for handlers' own transactions, not yet open: they may take long, ours may not."""
        return Database(
            self.settings.require_database_url(),
            name=f"handlers {os.getpid()}",
            size=self.settings.database_pool_size,
            answer_seconds=max(_HANDLERS_ANSWER_SECONDS, self.settings.lease_seconds),
            for_handlers=True,
        )

    def transport(self, name: str) -> Transport:
        """Return a connection to the broker, not yet open."""
        emit, servers = self.telemetry.emit, self.settings.nats_hosts()

        def tell(what: str, detail: dict[str, Any]) -> None:
            kind = TransportReady if what in _GOOD_NEWS else TransportChanged
            if what == "broker_error":
                kind, detail = TransportFailing, {"servers": servers} | detail
            emit(kind(what, ", ".join(f"{name}={value}" for name, value in detail.items())))

        return JetStream(self.settings, name=f"grns {name}", on_fact=tell)

    @asynccontextmanager
    async def connections(
        self, name: str, *, size: int | None = None, is_patient: bool = False
    ) -> AsyncIterator[tuple[Database, Transport]]:
        """Open both connections, and close them afterwards.

        A patient process begins its work without the broker, which is connected to when it comes.
        """
        database, transport = self.database(name, size=size), self.transport(name)
        async with database.opened():
            await transport.connect(is_patient=is_patient)
            try:
                yield database, transport
            finally:
                await transport.close()

    def relay(self, database: Database, transport: Transport) -> Relay:
        """Return a relay."""
        settings = self.settings
        return Relay(
            database=database,
            transport=transport,
            owner=_owner(),
            lease_seconds=settings.relay_lease_seconds,
            busy_seconds=settings.relay_busy_seconds,
            idle_seconds=settings.relay_idle_seconds,
            window=settings.relay_window,
            max_bytes=settings.envelope_max_bytes,
            replay_seconds=settings.relay_replay_seconds,
            emit=self.telemetry.emit,
            spans=self.spans,
        )

    def request_desk(self, database: Database, _transport: Transport) -> RequestDesk:
        """Return a request desk, with a connection of its own to the broker."""
        settings, emit = self.settings, self.telemetry.emit
        transport = self.transport("request desk")
        clerk = Clerk(
            database=database,
            transport=transport,
            orders=Orders(database, batch_limit=settings.claim_batch, actor=_BUS),
            envelope_limits=settings.envelope_limits,
            payload_limits=settings.payload_limits,
            emit=emit,
            spans=self.spans,
        )
        return RequestDesk(
            transport=transport,
            clerk=clerk,
            window=settings.request_window,
            depth=2 * settings.claim_batch,
            emit=emit,
        )

    def reaper(self, database: Database, transport: Transport) -> Reaper:
        """Return a reaper."""
        return Reaper(
            database=database,
            transport=transport,
            tick_seconds=self.settings.reap_tick_seconds,
            lease_seconds=self.settings.lease_seconds,
            emit=self.telemetry.emit,
        )

    def retry_scheduler(self, database: Database, transport: Transport) -> RetryScheduler:
        """Return a retry scheduler."""
        return RetryScheduler(
            database=database,
            transport=transport,
            tick_seconds=self.settings.promote_seconds,
            emit=self.telemetry.emit,
        )

    def counter(self, database: Database, _transport: Transport) -> Counter:
        """Return a counter."""
        return Counter(
            database=database,
            owner=_owner(),
            tick_seconds=self.settings.count_seconds,
            emit=self.telemetry.emit,
        )

    def janitor(self, database: Database, transport: Transport) -> Janitor:
        """Return a janitor."""
        settings = self.settings
        return Janitor(
            database=database,
            transport=transport,
            tick_seconds=settings.janitor_seconds,
            partition_rows=settings.log_partition_rows,
            log_days=settings.log_retention_days,
            task_days=settings.task_retention_days,
            dead_days=settings.dead_retention_days,
            processed_days=settings.remembered_days,
            minutes_days=settings.minutes_retention_days,
            webhook_days=settings.webhook_retention_days,
            unserved_seconds=settings.unserved_seconds,
            inspect_seconds=settings.inspect_seconds,
            patience_seconds=settings.patience_seconds,
            emit=self.telemetry.emit,
        )

    def operation_runner(self, database: Database, transport: Transport) -> OperationRunner:
        """Return a runner of operations."""
        return OperationRunner(
            database=database,
            transport=transport,
            owner=_owner(),
            tick_seconds=self.settings.operation_seconds,
            payload_limits=self.settings.payload_limits,
            emit=self.telemetry.emit,
        )

    def webhook_sender(self, database: Database, _transport: Transport) -> WebhookSender:
        """Return a sender of webhooks."""
        settings = self.settings
        return WebhookSender(
            database=database,
            poster=self.poster(),
            guard=settings.webhook_guard,
            tick_seconds=settings.webhook_seconds,
            window=settings.webhook_window,
            attempts=settings.webhook_attempts,
            timeout_seconds=settings.webhook_timeout_seconds,
            failing_seconds=settings.webhook_failing_days * _DAY_SECONDS,
            most_pending=settings.webhook_most_pending,
            emit=self.telemetry.emit,
        )

    def poster(self) -> Poster:
        """Return what posts to webhooks; `SettingsError` where there are no such certificates."""
        settings, file = self.settings, self.settings.webhook_ca_file
        try:
            tls = None if file is None else believing(str(file))
        except OSError as error:
            raise SettingsError(f"GRNS_WEBHOOK_CA_FILE: cannot read {file}: {error}") from error
        return Poster(
            guard=settings.webhook_guard,
            timeout_seconds=settings.webhook_timeout_seconds,
            agent=f"grns/{VERSION}",
            tls=tls,
        )

    @property
    def daemons(self) -> dict[str, Callable[[Database, Transport], Service]]:
        """The daemons by name, as `grns server` runs them all."""
        return {
            "relay": self.relay,
            "request-desk": self.request_desk,
            "reaper": self.reaper,
            "retry-scheduler": self.retry_scheduler,
            "counter": self.counter,
            "janitor": self.janitor,
            "operation-runner": self.operation_runner,
            "webhook-sender": self.webhook_sender,
        }

    def triage(self, database: Database, transport: Transport, *, workspace: str | None = None) -> Triage:
        """Return what an operator can do in a workspace, ours where none is named."""
        settings = self.settings
        return Triage(
            database=database,
            transport=transport,
            workspace=workspace or settings.workspace,
            payload_limits=settings.payload_limits,
            envelope_limits=settings.envelope_limits,
        )

    def client(
        self,
        database: Database,
        transport: Transport,
        handlers_database: Database,
        *,
        actor: str | None = None,
    ) -> Client:
        """Return a client; it needs `handlers_database` to be open only where it subscribes.

        `actor` is who asks, as the log is to have it of all that is done with this client.
        """
        settings = self.settings
        return Client(
            database=database,
            handlers_database=handlers_database,
            transport=transport,
            workspace=settings.workspace,
            payload_limits=settings.payload_limits,
            envelope_limits=settings.envelope_limits,
            batch_limit=settings.claim_batch,
            actor=actor,
            emit=self.telemetry.emit,
            spans=self.spans,
        )

    def explainer(self, database: Database, transport: Transport) -> Explainer:
        """Return what explains the tasks of the workspace."""
        return Explainer(
            database=database, whole=database, transport=transport, workspace=self.settings.workspace
        )

    def examination(self, database: Database, transport: Transport) -> Examination:
        """Return what a doctor reads; neither connection has to be open."""
        if not isinstance(transport, JetStream):
            raise BadInput("bad_transport", "only JetStream can be examined")
        return Examination(database=database, transport=transport, settings=self.settings, version=VERSION)

    def pauses(self, database: Database, transport: Transport) -> Pauses:
        """Return what pauses and resumes the pools of the workspace."""
        return Pauses(database=database, transport=transport, workspace=self.settings.workspace)

    def api(self, database: Database, transport: Transport, *, port: int | None = None) -> ApiServer:
        """Return the server of the HTTP API and the dashboard; it has taken its port.

        That is the one of the settings where none is named. Raises `Unavailable` where it is taken, and
        `SettingsError` where what the server needs is not installed.
        """
        try:
            from grns.api.server import ApiServer
            from grns.web.site import make_site
        except ModuleNotFoundError as error:
            missing = SettingsError(f"the API needs {error.name}, which is not installed")
            missing.add_note("pip install 'grns[api]'")
            raise missing from error

        settings = self.settings
        desk = self.desk(database, transport)
        secret = None if settings.web_secret is None else settings.web_secret.get_secret_value()
        site = make_site(desk, secret=secret)
        return ApiServer(desk, site, host=settings.api_host, port=settings.api_port if port is None else port)

    def desk(self, database: Database, transport: Transport) -> Desk:
        """Return what the API answers requests with."""
        from grns.api.desk import Desk
        from grns.server_url import is_loopback

        settings, agents = self.settings, _AgentKit(self, database, transport)
        return Desk(
            database=database,
            transport=transport,
            workspace=settings.workspace,
            payload_limits=settings.payload_limits,
            result_limits=settings.result_limits,
            envelope_limits=settings.envelope_limits,
            batch_limit=settings.claim_batch,
            agent_claims=agents.claims(),
            agent_writes=agents.writes(),
            agent_wait_seconds=settings.agent_wait_seconds,
            agent_lease_seconds=settings.agent_lease_seconds,
            is_loopback=is_loopback(settings.api_host),
            webhook_guard=settings.webhook_guard,
            emit=self.telemetry.emit,
            metrics=self.exposition,
            spans=self.spans,
        )

    def exposition(self) -> bytes:
        """Return the metrics of this process, as Prometheus reads them; none where none are kept."""
        from grns.telemetry.metrics import MetricsLeaf

        return b"".join(leaf.exposition() for leaf in self.leaves if isinstance(leaf, MetricsLeaf))

    def keeper(self, orders: KeeperOrders, database: Database, transport: Transport) -> Keeper:
        """Return the keeper of the worker that is our parent."""
        return Keeper(
            database=database,
            transport=transport,
            book=LeaseBook.attach(orders.book_descriptor, orders.slots),
            agent_id=orders.agent_id,
            lease_seconds=self.settings.lease_seconds,
            ack_wait_seconds=self.settings.ack_wait_seconds,
            is_worker_running=partial(is_running, orders.worker_pid),
            emit=self.telemetry.emit,
        )

    def worker(
        self, pool: Pool, database: Database, transport: Transport, handlers_database: Database
    ) -> Worker:
        """Return a worker of one pool."""
        return _WorkerKit(self, pool, database, transport, handlers_database).worker()


@dataclass(frozen=True)
class KeeperOrders:
    """What a worker tells its keeper."""

    book_descriptor: int
    slots: int
    agent_id: str
    worker_pid: int
    settings: Settings

    def dump(self) -> bytes:
        """Return the orders as one line."""
        return json.dumps(
            {
                "slots": self.slots,
                "agent_id": self.agent_id,
                "worker_pid": self.worker_pid,
                "settings": reveal(self.settings),
            }
        ).encode()

    @classmethod
    def read(cls, line: bytes, book_descriptor: int) -> KeeperOrders:
        """Read what `dump` wrote."""
        said = json.loads(line)
        settings = load(**said["settings"])
        return cls(book_descriptor, said["slots"], said["agent_id"], said["worker_pid"], settings)


class _WorkerKit:
    """Puts one worker together."""

    def __init__(
        self, app: App, pool: Pool, database: Database, transport: Transport, handlers_database: Database
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
        )
        self.slots = Slots(settings.concurrency)
        self.book, self.book_descriptor = LeaseBook.create(book_size(settings.concurrency))
        self.leases = Leases(self.book, lease_seconds=settings.lease_seconds, emit=self.emit)
        self.claims = Claims(database, self.claimant, batch_limit=settings.claim_batch, keeping=self.leases)
        self.result_limits = settings.result_limits
        self.handlers = Handlers(
            pool,
            make_context=self.context,
            threads=settings.concurrency + 8,
            result_limits=self.result_limits,
            emit=self.emit,
        )
        self.walk = Walk(
            claims=self.claims,
            finishes=Finishes(database, batch_limit=settings.claim_batch),
            leases=self.leases,
            handlers=self.handlers,
            slots=self.slots,
            graveyard=Graveyard(database, workspace=settings.workspace, emit=self.emit),
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
            keeper=self.keeper_process(),
            leases=self.leases,
            handlers=self.handlers,
            walk=self.walk,
            slots=self.slots,
            make_floor=self.floor,
            make_door=self.door,
            make_pause_watch=self.pause_watch,
            grace_seconds=self.settings.shutdown_grace_seconds,
            version=VERSION,
            emit=self.emit,
        )

    def context(self, claim: Claim, lease: Lease) -> Context:
        """Return what a handler sees of its task."""
        return Context(
            claim,
            lease,
            agent_id=self.claimant.agent_id,
            workspace=self.claimant.workspace,
            database=self.handlers_database,
            result_limits=self.result_limits,
        )

    def keeper_process(self) -> KeeperProcess:
        """Return the process that keeps this worker's leases."""
        orders = KeeperOrders(
            self.book_descriptor, self.book.slots, self.claimant.agent_id, os.getpid(), self.settings
        )
        return KeeperProcess(
            book_descriptor=self.book_descriptor,
            orders=orders.dump(),
            lease_seconds=self.settings.lease_seconds,
            beats=lambda: self.book.beats,
            emit=self.emit,
        )

    def floor(self, worker: Worker) -> Floor:
        """Return the worker's floor."""
        settings = self.settings
        return Floor(
            claims=self.claims,
            walk=self.walk,
            slots=self.slots,
            start=worker.start,
            last_delivery_at=lambda: worker.intake.last_delivery_at,
            is_broker_failing=lambda: worker.is_broker_failing,
            after_seconds=settings.floor_after_seconds,
            longest_pause_seconds=settings.floor_max_seconds,
            busy_age_seconds=settings.floor_busy_age_seconds,
            emit=self.emit,
        )

    def door(self, worker: Worker) -> FrontDoor:
        """Return the worker's front door."""
        return FrontDoor(
            walk=self.walk,
            database=self.database,
            claimant=self.claimant,
            slots=self.slots,
            start=worker.start,
            emit=self.emit,
        )

    def pause_watch(self, worker: Worker) -> PauseWatch:
        """Return what tells the worker that its pool is paused."""
        return PauseWatch(
            database=self.database,
            claimant=self.claimant,
            slots=self.slots,
            on_resumed=worker.catch_up,
            emit=self.emit,
        )


class _AgentKit:
    """Puts together what agents over HTTP are served with."""

    def __init__(self, app: App, database: Database, transport: Transport) -> None:
        self.settings = app.settings
        self.emit = app.telemetry.emit
        self.database, self.transport = database, transport
        self.attendance = Attendance(database, emit=self.emit)
        self.pace = Pace(
            after_seconds=self.settings.floor_after_seconds,
            longest_pause_seconds=self.settings.floor_max_seconds,
            busy_age_seconds=self.settings.floor_busy_age_seconds,
        )

    def claims(self) -> AgentClaims:
        """Return what agents ask for tasks."""
        return AgentClaims(
            database=self.database,
            make_reception=self.reception,
            make_room=self.room,
            attendance=self.attendance,
            nudges=Nudges(
                database=self.database,
                hosts=nudge_url.hosts(self.settings.agent_nudge_hosts),
                post=self.post(),
                emit=self.emit,
            ),
            pace=self.pace,
            emit=self.emit,
        )

    def writes(self) -> AgentWrites:
        """Return what agents tell what came of them."""
        return AgentWrites(attendance=self.attendance, emit=self.emit)

    def reception(self, claims: Claims, who: Claimant) -> Reception:
        """Return what takes commands to claims for one agent."""
        return Reception(
            claims=claims,
            graveyard=Graveyard(self.database, workspace=who.workspace, emit=self.emit),
            envelope_limits=self.settings.envelope_limits,
            task_types=list(who.handled),
            emit=self.emit,
        )

    def room(self, who: Claimant) -> WaitingRoom:
        """Return a room for the agents of one type."""
        return WaitingRoom(
            claimant=who,
            reception=self.reception(Claims(self.database, who, batch_limit=1), who),
            database=self.database,
            transport=self.transport,
            pace=self.pace,
            emit=self.emit,
        )

    def post(self) -> Post:
        """Return what nudges; `SettingsError` where it is wanted, and what it needs is not installed."""
        if not self.settings.agent_nudge_hosts:
            return _nobody
        try:
            from grns.agent_post import post
        except ModuleNotFoundError as error:
            missing = SettingsError(f"nudging agents needs {error.name}, which is not installed")
            missing.add_note("pip install 'grns[http]'")
            raise missing from error
        return post


async def _nobody(_url: str, _body: bytes) -> int:
    raise SettingsError("GRNS_AGENT_NUDGE_HOSTS names nobody")


def _owner() -> str:
    """Return a name for one that may lead: no two have the same."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@asynccontextmanager
async def connect(*, actor: str | None = None, **settings: Any) -> AsyncIterator[Client]:
    """Open a client: `async with grns.connect() as client:`.

    Settings come from the environment (`GRNS_DATABASE_URL`, `GRNS_NATS_URL`, …) unless given
    here by name. Needs Postgres; the broker is connected to in the background. What goes wrong there, and
    in handlers of events, is told to the logger `grns`. `actor` (255 printable characters at most, no space)
    is who asks, as `billing`: the log has it with all that is submitted, cancelled and redriven here.
    """
    if actor is not None:
        check_actor(actor)
    app = App(load(**settings), (LoggerLeaf(),))
    app.trace("client", is_guest=True)
    handlers_database = app.handlers_database()
    try:
        async with (
            app.connections("client", is_patient=True) as (database, transport),
            handlers_database.opened(),
        ):
            client = app.client(database, transport, handlers_database, actor=actor)
            try:
                yield client
            finally:
                await client.close()
    finally:
        if app.spans.is_on:
            await asyncio.to_thread(app.spans.close)
