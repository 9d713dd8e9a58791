"""Wiring of the services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from grns.bootstrap.app import VERSION, App
from grns.errors import SettingsError
from grns.gateway.command_store import CommandStore
from grns.gateway.commands import CommandHandler
from grns.gateway.server import CommandServer, RequestWindow
from grns.limits.admitter import TaskAdmitter
from grns.maintenance.budget_watch import BudgetWatch
from grns.maintenance.event_matcher import EventMatcher
from grns.maintenance.janitor import Janitor
from grns.maintenance.reaper import Reaper
from grns.maintenance.scheduler import RetryScheduler
from grns.nats import JetStream
from grns.operations.runner import OperationRunner
from grns.outbox.consumer import LEASE_SECONDS
from grns.outbox.relay import Relay
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.runtime.place import open_place
from grns.runtime.service import Service
from grns.schedules.scheduler import Scheduler
from grns.stats.aggregator import StatsAggregator
from grns.stats.text_indexer import TextIndexer
from grns.webhooks.http import HttpSender, trust
from grns.webhooks.sender import WebhookSender
from grns.workflows.follower import TaskFollower

# The actor of commands over the bus: only the broker knows their sender.
_BUS = "nats"


def relay(app: App, database: Database, transport: JetStream) -> Relay:
    """Return a relay."""
    return Relay(
        database=database,
        transport=transport,
        lease=LeaderLease("relay", app.new_owner(), app.settings.relay_lease_seconds),
        settings=app.settings,
        emit=app.telemetry.emit,
        spans=app.spans,
    )


def command_server(app: App, database: Database, _transport: JetStream) -> CommandServer:
    """Return a command server, with a connection of its own to the broker."""
    settings, emit = app.settings, app.telemetry.emit
    transport = app.transport("command server")
    handler = CommandHandler(
        database=database,
        transport=transport,
        commands=CommandStore(database, batch_limit=settings.claim_batch, actor=_BUS),
        envelope_limits=settings.envelope_limits,
        payload_limits=settings.payload_limits,
        emit=emit,
        spans=app.spans,
    )
    return CommandServer(
        transport=transport,
        handler=handler,
        window=RequestWindow(requests=settings.request_window),
        depth=2 * settings.claim_batch,
        emit=emit,
    )


def reaper(app: App, database: Database, transport: JetStream) -> Reaper:
    """Return a reaper."""
    return Reaper(database=database, transport=transport, settings=app.settings, emit=app.telemetry.emit)


def retry_scheduler(app: App, database: Database, transport: JetStream) -> RetryScheduler:
    """Return a retry scheduler."""
    return RetryScheduler(database=database, transport=transport, emit=app.telemetry.emit)


def task_follower(app: App, database: Database, transport: JetStream) -> TaskFollower:
    """Return a follower of tasks that others need."""
    lease = LeaderLease("follower", app.new_owner(), LEASE_SECONDS)
    return TaskFollower(database=database, transport=transport, lease=lease, emit=app.telemetry.emit)


def task_admitter(app: App, database: Database, transport: JetStream) -> TaskAdmitter:
    """Return an admitter of tasks that fall under limits."""
    lease = LeaderLease("admitter", app.new_owner(), LEASE_SECONDS)
    return TaskAdmitter(database=database, transport=transport, lease=lease, emit=app.telemetry.emit)


def budget_watch(app: App, database: Database, transport: JetStream) -> BudgetWatch:
    """Return what looks at budgets."""
    return BudgetWatch(database=database, transport=transport, emit=app.telemetry.emit)


def event_matcher(app: App, database: Database, _transport: JetStream) -> EventMatcher:
    """Return what sends tasks the events that they wait for."""
    return EventMatcher(database=database, emit=app.telemetry.emit)


def scheduler(app: App, database: Database, transport: JetStream) -> Scheduler:
    """Return a scheduler."""
    limits = app.settings.payload_limits
    return Scheduler(database=database, transport=transport, limits=limits, emit=app.telemetry.emit)


def stats_aggregator(app: App, database: Database, _transport: JetStream) -> StatsAggregator:
    """Return a stats aggregator."""
    lease = LeaderLease("stats", app.new_owner(), LEASE_SECONDS)
    return StatsAggregator(database=database, lease=lease, emit=app.telemetry.emit)


def text_indexer(app: App, database: Database, _transport: JetStream) -> TextIndexer:
    """Return a text indexer."""
    return TextIndexer(database=database, has_payloads=app.settings.search_payloads, emit=app.telemetry.emit)


def janitor(app: App, database: Database, transport: JetStream) -> Janitor:
    """Return a janitor."""
    archive = open_place(app.settings.archive, "GRNS_ARCHIVE") if app.settings.archive else None
    return Janitor(
        database=database,
        transport=transport,
        settings=app.settings,
        emit=app.telemetry.emit,
        archive=archive,
    )


def operation_runner(app: App, database: Database, transport: JetStream) -> OperationRunner:
    """Return a runner of bulk operations."""
    return OperationRunner(
        database=database,
        transport=transport,
        owner=app.new_owner(),
        payload_limits=app.settings.payload_limits,
        emit=app.telemetry.emit,
    )


def webhook_sender(app: App, database: Database, _transport: JetStream) -> WebhookSender:
    """Return a sender of webhooks."""
    return WebhookSender(
        database=database,
        http=_webhook_http(app),
        guard=app.settings.webhook_guard,
        settings=app.settings,
        emit=app.telemetry.emit,
    )


def _webhook_http(app: App) -> HttpSender:
    """Return the HTTP client of webhooks; `SettingsError` if its certificates cannot be read."""
    settings, file = app.settings, app.settings.webhook_ca_file
    try:
        tls = None if file is None else trust(str(file))
    except OSError as error:
        raise SettingsError(f"GRNS_WEBHOOK_CA_FILE: cannot read {file}: {error}") from error
    return HttpSender(
        policy=settings.webhook_guard,
        timeout_seconds=settings.webhook_timeout_seconds,
        agent=f"grns/{VERSION}",
        tls=tls,
    )


# The services of each daemon.
DAEMONS: Mapping[str, Sequence[Callable[[App, Database, JetStream], Service]]] = {
    "relay": [relay],
    "command-server": [command_server],
    "reaper": [reaper],
    "scheduler": [retry_scheduler, task_follower, task_admitter, event_matcher, budget_watch, scheduler],
    "stats": [stats_aggregator, text_indexer],
    "janitor": [janitor],
    "operations": [operation_runner],
    "webhooks": [webhook_sender],
}


def services_of(names: Iterable[str], app: App, database: Database, transport: JetStream) -> list[Service]:
    """Return the services of daemons."""
    return [make(app, database, transport) for name in names for make in DAEMONS[name]]
