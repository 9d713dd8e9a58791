"""The janitor: partitions, retention, what nobody serves, failovers, and whether all is as it should be."""

from __future__ import annotations

import time

from grns import subjects
from grns.daemon import Daemon
from grns.envelope import rfc3339
from grns.errors import GrnsError
from grns.inspection import Inspector
from grns.retention import Retention
from grns.store import upkeep
from grns.store.burial import Corpse, bury
from grns.store.database import Database
from grns.store.failover import note_server
from grns.telemetry.emit import Emit
from grns.telemetry.facts import MessageRejected, PostgresFailedOver, QueueAge, RowsDeleted, TickFailed
from grns.transport.base import Transport

_DAY_SECONDS = 86_400.0
_PAGE = 1000
_PAGE_PAUSE_SECONDS = 0.05
_UNSERVED_EVERY_SECONDS = 60.0


class Janitor:
    """Keeps house in small batches; any number of janitors may run."""

    def __init__(
        self,
        *,
        database: Database,
        transport: Transport,
        tick_seconds: float,
        partition_rows: int,
        log_days: float,
        task_days: float,
        dead_days: float,
        processed_days: float,
        unserved_seconds: float,
        inspect_seconds: float,
        patience_seconds: float,
        emit: Emit,
    ) -> None:
        self._database = database
        self._transport = transport
        self._tick_seconds = tick_seconds
        self._partition_rows = partition_rows
        self._log_seconds = log_days * _DAY_SECONDS
        self._task_seconds = task_days * _DAY_SECONDS
        self._processed_seconds = processed_days * _DAY_SECONDS
        self._unserved_seconds = unserved_seconds
        self._emit = emit
        self._chores_at = 0.0
        self._forgets = {
            "processed_messages": lambda: upkeep.delete_processed(database, _PAGE, self._processed_seconds),
            "agents": lambda: upkeep.delete_agents(database, self._task_seconds),
            # What they published goes with the log, and so does that they did.
            "replays": lambda: upkeep.delete_replays(database, _PAGE, self._log_seconds),
        }
        self._to_forget: list[str] = []
        self._unserved_at = 0.0
        self._retention = Retention(
            database, ended_seconds=self._task_seconds, dead_seconds=dead_days * _DAY_SECONDS, emit=emit
        )
        self._inspector = Inspector(
            database, patience_seconds=patience_seconds, every_seconds=inspect_seconds, emit=emit
        )
        self._daemon = Daemon("janitor", self._tick, emit=emit)

    async def run(self) -> None:
        """Keep house until stopped."""
        await self._daemon.run()

    def stop(self) -> None:
        """Ask for the end."""
        self._daemon.stop()

    async def _tick(self) -> float:
        if time.monotonic() >= self._chores_at:
            await self._do_chores()
            self._chores_at = time.monotonic() + self._tick_seconds
        is_forgetting = await self._forget()
        is_walking = await self._retention.step()
        is_inspecting = await self._inspector.step()
        is_busy = is_forgetting or is_walking or is_inspecting
        return _PAGE_PAUSE_SECONDS if is_busy else self._tick_seconds

    async def _do_chores(self) -> None:
        await self._notice_failover()
        await upkeep.keep_partitions(self._database, self._partition_rows, self._log_seconds)
        await self._tell_queue_ages()
        self._to_forget = list(self._forgets)
        await self._bury_unserved()

    async def _notice_failover(self) -> None:
        try:
            failover = await note_server(self._database)
        except GrnsError as error:
            # Something like Postgres may not know its timeline; the house is kept all the same.
            self._emit(TickFailed("janitor_failover", str(error)))
            return
        if failover is not None:
            self._emit(
                PostgresFailedOver(
                    failover.id, failover.old_timeline, failover.new_timeline, failover.is_same_cluster,
                    rfc3339(failover.last_seen_at), "`grns verify` lists what may have been lost",
                )
            )  # fmt: skip

    async def _tell_queue_ages(self) -> None:
        for row in await upkeep.queue_ages(self._database):
            self._emit(QueueAge(row["workspace"], row["agent_type"], row["priority"], row["oldest_seconds"]))

    async def _forget(self) -> bool:
        """Delete one page of what is past its time from each table; True while some page was full."""
        for table in tuple(self._to_forget):
            rows = await self._forgets[table]()
            if rows:
                self._emit(RowsDeleted(table, rows))
            if rows < _PAGE:
                self._to_forget.remove(table)
        return bool(self._to_forget)

    async def _bury_unserved(self) -> None:
        if time.monotonic() < self._unserved_at:
            return
        self._unserved_at = time.monotonic() + min(_UNSERVED_EVERY_SECONDS, self._unserved_seconds)
        try:
            for message in await self._transport.unserved(
                subjects.CMD_STREAM, older_than_seconds=self._unserved_seconds
            ):
                self._emit(MessageRejected("unserved", message.subject, message.seq, "no durable serves it"))
                corpse = Corpse(
                    subjects.DEFAULT_WORKSPACE, "unserved", "no durable serves this subject", message.subject,
                    message.stream, message.seq, 0, message.headers, message.body,
                )  # fmt: skip
                await bury(self._database, [corpse])
                await self._transport.discard(message.stream, message.seq)
        except GrnsError as error:
            # The rest of the house does not depend on the broker.
            self._emit(TickFailed("janitor_unserved", str(error)))
