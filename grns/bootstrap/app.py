"""One process: the settings, telemetry and connections that its services share."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

from grns.errors import SettingsError
from grns.model.blob import BlobRules
from grns.model.seal import Keyring
from grns.model.vault import Vault
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.runtime.place import open_place
from grns.runtime.service import Answer, wait_for_postgres
from grns.settings import Settings
from grns.telemetry.service_signals import (
    JetStreamOutOfRoom,
    TransportChanged,
    TransportFailing,
    TransportReady,
)
from grns.telemetry.signal import Listener, Signal, Telemetry
from grns.telemetry.spans import NO_SPANS, Spans

VERSION = version("grns")

# Timeout of a handler's own statement.
_HANDLERS_ANSWER_SECONDS = 60.0
_TRANSPORT_SIGNALS: dict[str, Callable[[str, str], Signal]] = {
    "broker_error": TransportFailing,
    "broker_connected": TransportReady,
    "stream_made": TransportReady,
    "durable_made": TransportReady,
}


@dataclass
class App:
    """One process: its settings, its telemetry, and the connections that its services share."""

    settings: Settings
    listeners: tuple[Listener, ...] = ()
    spans: Spans = NO_SPANS
    telemetry: Telemetry = field(init=False)

    def __post_init__(self) -> None:
        self.telemetry = Telemetry(*self.listeners)

    def trace(self, service: str, *, is_embedded: bool = False) -> None:
        """Export spans if the settings name a collector. Raises SettingsError if it cannot.

        An embedded client runs in a program of the user and leaves its tracer and loggers unchanged.
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
            raise SettingsError("GRNS_OTLP_ENDPOINT must be an HTTP URL such as http://127.0.0.1:4318")
        self.spans = spans = open_spans(endpoint, service=service)
        if not is_embedded:
            take_over(spans)

    @cached_property
    def vault(self) -> Vault:
        """What seals and opens secrets, by the keys of GRNS_KEYS_FILE."""
        path = self.settings.keys_file
        return Vault(None if path is None else Keyring.read(path))

    @cached_property
    def blob_rules(self) -> BlobRules:
        """How large blobs may be, and where large ones are kept."""
        settings, store = self.settings, self.settings.blob_store
        place = open_place(store, "GRNS_BLOB_STORE", must_exist=False) if store else None
        return BlobRules(settings.blob_max_bytes, settings.blobs_max_bytes, place)

    def database(self, name: str, *, size: int | None = None) -> Database:
        """Return a pool of connections, not yet open."""
        settings = self.settings
        return Database(
            settings.require_database_url(),
            name=f"{name} {os.getpid()}",  # pg_stat_activity does not show our process id
            size=size or settings.database_pool_size,
            is_tuned=settings.database_startup_params,
            answer_seconds=max(2.0, settings.lease_seconds / 3),
            vault=self.vault,
            blob_rules=self.blob_rules,
        )

    def handlers_database(self) -> Database:
        """Return the pool for handlers' own transactions, not yet open; their statements may take longer."""
        return Database(
            self.settings.require_database_url(),
            name=f"handlers {os.getpid()}",
            size=self.settings.database_pool_size,
            answer_seconds=max(_HANDLERS_ANSWER_SECONDS, self.settings.lease_seconds),
            for_handlers=True,
            vault=self.vault,
            blob_rules=self.blob_rules,
        )

    def transport(self, name: str) -> JetStream:
        """Return a connection to the broker, not yet open."""
        emit, servers = self.telemetry.emit, self.settings.nats_hosts()

        def on_change(what: str, detail: dict[str, Any]) -> None:
            if what == "jetstream_out_of_room":
                emit(JetStreamOutOfRoom(detail["error"]))
                return
            if what == "broker_error":
                detail = {"servers": servers} | detail
            kind = _TRANSPORT_SIGNALS.get(what, TransportChanged)
            emit(kind(what, ", ".join(f"{name}={value}" for name, value in detail.items())))

        return JetStream(self.settings, name=f"grns {name}", on_fact=on_change)

    @asynccontextmanager
    async def connections(
        self, name: str, *, size: int | None = None, is_patient: bool = False, is_service: bool = False
    ) -> AsyncIterator[tuple[Database, JetStream]]:
        """Open both connections and close them afterwards.

        A patient process starts without the broker and connects when it is there. A service is patient and
        waits for Postgres too.
        """
        database, transport = self.database(name, size=size), self.transport(name)
        is_patient = is_patient or is_service
        async with database.opened(self.wait_for_postgres if is_service else None):
            await transport.connect(is_patient=is_patient)
            try:
                yield database, transport
            finally:
                await transport.close()

    async def wait_for_postgres(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call `work` until Postgres answers."""
        return await wait_for_postgres(work, emit=self.telemetry.emit)

    def new_owner(self) -> str:
        """Return a unique name for the owner of a leader lease."""
        return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    def exposition(self) -> bytes:
        """Return the metrics of this process in Prometheus' format; empty if it has none."""
        from grns.telemetry.metrics_listener import MetricsListener

        return b"".join(
            listener.exposition() for listener in self.listeners if isinstance(listener, MetricsListener)
        )
