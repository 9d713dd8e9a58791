"""Wiring of clients and of the tools of operators."""

from __future__ import annotations

from grns.bootstrap.app import VERSION, App
from grns.client.client import Client
from grns.dead_letters.triage import Triage
from grns.diagnose.doctor.collect import SnapshotCollector
from grns.diagnose.explain.collect import Explainer
from grns.errors import InvalidInputError
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks.pause_pools import PoolPauses


def client(
    app: App,
    database: Database,
    transport: JetStream,
    handlers_database: Database,
    *,
    actor: str | None = None,
) -> Client:
    """Return a client of the workspace; only subscriptions need `handlers_database` to be open.

    The event log stores `actor` with the changes made by this client.
    """
    settings = app.settings
    return Client(
        database=database,
        handlers_database=handlers_database,
        transport=transport,
        workspace=settings.workspace,
        payload_limits=settings.payload_limits,
        envelope_limits=settings.envelope_limits,
        batch_limit=settings.claim_batch,
        actor=actor,
        emit=app.telemetry.emit,
        spans=app.spans,
    )


def triage(app: App, database: Database, transport: JetStream, *, workspace: str | None = None) -> Triage:
    """Return the triage of dead letters in a workspace. Defaults to that of the settings."""
    settings = app.settings
    return Triage(
        database=database,
        transport=transport,
        workspace=workspace or settings.workspace,
        payload_limits=settings.payload_limits,
        envelope_limits=settings.envelope_limits,
    )


def pauses(app: App, database: Database, transport: JetStream) -> PoolPauses:
    """Return the pauses of the pools of the workspace."""
    return PoolPauses(database=database, transport=transport, workspace=app.settings.workspace)


def explainer(app: App, database: Database, transport: JetStream) -> Explainer:
    """Return the explainer of the tasks of the workspace."""
    return Explainer(database=database, whole=database, transport=transport, workspace=app.settings.workspace)


def doctor(app: App, database: Database, transport: JetStream, *, is_open: bool = False) -> SnapshotCollector:
    """Return the collector of `grns doctor`, which needs neither server. `is_open`: they are connected."""
    if not isinstance(transport, JetStream):
        raise InvalidInputError("bad_transport", "doctor needs JetStream")
    return SnapshotCollector(
        database=database, transport=transport, settings=app.settings, version=VERSION, is_open=is_open
    )
