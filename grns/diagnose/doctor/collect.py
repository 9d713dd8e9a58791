"""Collects the state of an installation for the doctor."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from grns.diagnose.daemons import read_pulse
from grns.diagnose.doctor import read as checkup
from grns.diagnose.doctor.snapshot import Broker, ClockSkew, Snapshot
from grns.errors import GrnsError
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.settings import Settings

Read = TypeVar("Read")


class SnapshotCollector:
    """Reads an installation, as far as Postgres and the broker can be reached. It changes nothing.

    With `is_open`, the connections are open already; otherwise they are opened, and the caller closes them.
    Unserved tasks are those of the settings' workspace.
    """

    def __init__(
        self,
        *,
        database: Database,
        transport: JetStream,
        settings: Settings,
        version: str,
        is_open: bool = False,
    ) -> None:
        self._database = database
        self._transport = transport
        self._settings = settings
        self._version = version
        self._is_open = is_open
        self._troubles: dict[str, str] = {}

    async def read(self) -> Snapshot:
        """Return the snapshot."""
        found = await self._read_database()
        broker = await self._tried("broker", self._read_broker())
        return Snapshot(
            settings=self._settings,
            version=self._version,
            at=datetime.now(UTC),
            broker=broker,
            clocks=await self._read_clocks(has_broker=broker is not None, has_database="postgres" in found),
            troubles=self._troubles,
            **found,
        )

    async def _read_database(self) -> dict[str, Any]:
        """Return the fields of the snapshot that come from Postgres."""
        database = self._database
        found: dict[str, Any] = {}
        if (trouble := await self._connect(database)) is not None:
            self._troubles["postgres"] = trouble
            return {}
        server = await self._tried("postgres", checkup.read_server(database))
        if server is None:
            return {}
        found["postgres"] = server
        schema = await self._tried("schema", checkup.read_schema(database))
        found["schema"] = schema
        if schema is None or schema.found != schema.needed:
            return found
        found["log"] = await self._tried("log", checkup.read_log(database))
        found["pulse"] = await self._tried("pulse", read_pulse(database))
        patience = self._settings.stuck_after_seconds
        found["stuck"] = await self._tried("stuck", checkup.read_stuck(database, patience))
        found["workers_by_pool"] = await self._tried("pools", checkup.read_crews(database))
        workspace = self._settings.workspace
        found["unserved"] = await self._tried("pools", checkup.read_unserved(database, workspace))
        found["orphans"] = await self._tried("schedules", checkup.read_orphans(database, workspace))
        return found

    async def _connect(self, opened: Database | JetStream) -> str | None:
        """Open a connection; return the error that prevents it."""
        if self._is_open:
            return None
        try:
            await opened.connect()
        except GrnsError as error:
            return str(error)
        return None

    async def _read_broker(self) -> Broker | None:
        if (trouble := await self._connect(self._transport)) is not None:
            self._troubles["broker"] = trouble
            return None
        report = await self._transport.report()
        return Broker(self._transport.server_version, report)

    async def _read_clocks(self, *, has_broker: bool, has_database: bool) -> Sequence[ClockSkew]:
        clocks: list[ClockSkew | None] = []
        if has_database:
            reading = checkup.compare_clock("Postgres", lambda: checkup.read_clock(self._database))
            clocks.append(await self._tried("clocks", reading))
        if has_broker:
            asked = checkup.compare_clock("NATS", self._transport.clock)
            clocks.append(await self._tried("clocks", asked))
        return [clock for clock in clocks if clock is not None]

    async def _tried(self, name: str, reading: Awaitable[Read | None]) -> Read | None:
        """Return the result; None after an error, which `troubles` keeps."""
        try:
            return await reading
        except GrnsError as error:
            self._troubles[name] = str(error)
            return None
