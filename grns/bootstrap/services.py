"""Puts the daemons together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from grns.bootstrap.app import VERSION, App
from grns.errors import SettingsError
from grns.gateway.command_store import CommandStore
from grns.gateway.commands import CommandHandler
from grns.gateway.server import CommandServer
from grns.maintenance.janitor import Janitor
from grns.maintenance.reaper import Reaper
from grns.maintenance.scheduler import RetryScheduler
from grns.nats.interface import Transport
from grns.operations.runner import OperationRunner
from grns.outbox.relay import Relay
from grns.postgres.database import Database
from grns.runtime.service import Service
from grns.stats.aggregator import StatsAggregator
from grns.webhooks.http import WebhookHttp, believing
from grns.webhooks.sender import WebhookSender

_DAY_SECONDS = 86_400.0
# Who asks, as the log has it of what came over the bus: its sender is known to the broker alone.
_BUS = "nats"


def relay(app: App, database: Database, transport: Transport) -> Relay:
    """Return a relay."""
    settings = app.settings
    return Relay(
        database=database,
        transport=transport,
        owner=app.new_owner(),
        lease_seconds=settings.relay_lease_seconds,
        busy_seconds=settings.relay_busy_seconds,
        idle_seconds=settings.relay_idle_seconds,
        window=settings.relay_window,
        max_bytes=settings.envelope_max_bytes,
        replay_seconds=settings.relay_replay_seconds,
        emit=app.telemetry.emit,
        spans=app.spans,
    )


def request_desk(app: App, database: Database, _transport: Transport) -> CommandServer:
    """Return a request desk, with a connection of its own to the broker."""
    settings, emit = app.settings, app.telemetry.emit
    transport = app.transport("request desk")
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
        window=settings.request_window,
        depth=2 * settings.claim_batch,
        emit=emit,
    )


def reaper(app: App, database: Database, transport: Transport) -> Reaper:
    """Return a reaper."""
    return Reaper(
        database=database,
        transport=transport,
        tick_seconds=app.settings.reap_tick_seconds,
        lease_seconds=app.settings.lease_seconds,
        http_lease_seconds=app.settings.http_lease_seconds,
        emit=app.telemetry.emit,
    )


def retry_scheduler(app: App, database: Database, transport: Transport) -> RetryScheduler:
    """Return a retry scheduler."""
    return RetryScheduler(
        database=database,
        transport=transport,
        tick_seconds=app.settings.scheduler_interval_seconds,
        emit=app.telemetry.emit,
    )


def counter(app: App, database: Database, _transport: Transport) -> StatsAggregator:
    """Return a counter."""
    return StatsAggregator(
        database=database,
        owner=app.new_owner(),
        tick_seconds=app.settings.stats_interval_seconds,
        emit=app.telemetry.emit,
    )


def janitor(app: App, database: Database, transport: Transport) -> Janitor:
    """Return a janitor."""
    settings = app.settings
    return Janitor(
        database=database,
        transport=transport,
        tick_seconds=settings.janitor_interval_seconds,
        partition_rows=settings.log_partition_rows,
        log_days=settings.log_retention_days,
        task_days=settings.task_retention_days,
        dead_days=settings.dead_retention_days,
        processed_days=settings.remembered_days,
        rejected_messages=settings.rejected_max_messages,
        rejected_bytes=settings.rejected_max_bytes,
        minutes_days=settings.stats_retention_days,
        webhook_days=settings.webhook_retention_days,
        unserved_after_seconds=settings.unserved_after_seconds,
        verify_interval_seconds=settings.verify_interval_seconds,
        stuck_after_seconds=settings.stuck_after_seconds,
        emit=app.telemetry.emit,
    )


def operation_runner(app: App, database: Database, transport: Transport) -> OperationRunner:
    """Return a runner of operations."""
    return OperationRunner(
        database=database,
        transport=transport,
        owner=app.new_owner(),
        tick_seconds=app.settings.operations_interval_seconds,
        payload_limits=app.settings.payload_limits,
        emit=app.telemetry.emit,
    )


def webhook_sender(app: App, database: Database, _transport: Transport) -> WebhookSender:
    """Return a sender of webhooks."""
    settings = app.settings
    return WebhookSender(
        database=database,
        poster=poster(app),
        guard=settings.webhook_guard,
        tick_seconds=settings.webhook_interval_seconds,
        window=settings.webhook_window,
        attempts=settings.webhook_attempts,
        timeout_seconds=settings.webhook_timeout_seconds,
        failing_seconds=settings.webhook_failing_days * _DAY_SECONDS,
        most_pending=settings.webhook_max_pending,
        emit=app.telemetry.emit,
    )


def poster(app: App) -> WebhookHttp:
    """Return what posts to webhooks; `SettingsError` where there are no such certificates."""
    settings, file = app.settings, app.settings.webhook_ca_file
    try:
        tls = None if file is None else believing(str(file))
    except OSError as error:
        raise SettingsError(f"GRNS_WEBHOOK_CA_FILE: cannot read {file}: {error}") from error
    return WebhookHttp(
        guard=settings.webhook_guard,
        timeout_seconds=settings.webhook_timeout_seconds,
        agent=f"grns/{VERSION}",
        tls=tls,
    )


DAEMONS: Mapping[str, Callable[[App, Database, Transport], Service]] = {
    "relay": relay,
    "command-server": request_desk,
    "reaper": reaper,
    "scheduler": retry_scheduler,
    "stats": counter,
    "janitor": janitor,
    "operations": operation_runner,
    "webhooks": webhook_sender,
}
