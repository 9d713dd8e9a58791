"""The relay: publishes the log, in order; nobody else publishes.

One relay leads at a time: it holds a row in Postgres, and stops sending by its own clock
before that row can be somebody else's. How far it has got is persisted about once a
second; after a crash what was not persisted is sent again, under the same message ids.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from grns.errors import GrnsError, UnavailableError
from grns.model import subjects
from grns.nats.interface import Transport
from grns.outbox import log
from grns.outbox.log_range import FIRST_ROWS, MOST_ROWS, READ_BYTES, next_rows
from grns.outbox.message import OutboxMessage
from grns.outbox.ordered_publisher import OrderedPublisher
from grns.outbox.replay import Replayer
from grns.outbox.stream_loss import StreamLossDetector
from grns.outbox.watermark import Watermark
from grns.postgres.database import Database, Session
from grns.runtime.leader import LeaderLease
from grns.runtime.service import PeriodicService
from grns.telemetry import failpoint
from grns.telemetry.emit import Emit
from grns.telemetry.facts.relay import RelayBecameLeader, RelayHeldUp, RelayProgressed, RelayStandby
from grns.telemetry.spans import NO_SPANS, Spans

_STANDBY_SECONDS = 0.5
_FULL_PAUSE_SECONDS = 0.01


class RelayLeadership:
    """The lead, while it lasts: one connection, one epoch, what is done and what is under way."""

    def __init__(
        self,
        session: Session,
        lease: LeaderLease,
        cursor: log.RelayCursor,
        *,
        transport: Transport,
        max_bytes: int,
        replay_seconds: float,
        emit: Emit,
        spans: Spans,
    ) -> None:
        self._session = session
        self._lease = lease
        self._cursor = cursor
        self._emit = emit
        self._read_rows = FIRST_ROWS
        self._progress = Watermark(cursor.low, cursor.published)
        self._watch = StreamLossDetector(
            session,
            transport,
            places=cursor.places,
            replay_seconds=replay_seconds,
            emit=emit,
        )
        self._replays = Replayer(session, epoch=lease.epoch, emit=emit)
        self._publisher = OrderedPublisher(
            transport=transport,
            on_done=self._progress.done.add,
            on_receipt=self._watch.note,
            on_trouble=self._watch.suspect,
            may_send=lambda: time.monotonic() < lease.expires_at,
            max_bytes=max_bytes,
            emit=emit,
            spans=spans,
        )
        self._sending = asyncio.create_task(self._publisher.run())

    def is_full(self, most_pending: int) -> bool:
        """Say whether enough has been read that is not acknowledged.

        What is replayed does not count: nothing new waits for it. What one stream does not take keeps
        the others waiting only where there is very much of it.
        """
        publisher = self._publisher
        is_enough = publisher.under_way >= most_pending or publisher.under_way_bytes >= READ_BYTES
        return is_enough or publisher.holds_too_much

    @property
    def is_busy(self) -> bool:
        """Say whether something has been read that is not acknowledged."""
        return self._publisher.pending > 0

    async def keep(self) -> None:
        """Persist and renew, if it is time; `UnavailableError` where the lead is lost."""
        if self._lease.is_due:
            await self.persist()

    async def persist(self) -> None:
        """Persist what is done, and renew the lead with it."""
        done = self._progress.done
        known = self._cursor
        self._cursor = replace(
            known,
            low=done.low,
            published=done.beyond,
            places=self._watch.places,
        )
        if self._cursor != known:
            failpoint.reach("relay.not_persisted")
        xid = await log.hold(self._session, self._lease, self._cursor)
        if xid is None:
            raise UnavailableError("another relay leads now, or Postgres was failed over")
        self._progress.bound(xid)
        self._publisher.tell()
        if self._publisher.holds_too_much:
            self._emit(RelayHeldUp(self._publisher.held, self._publisher.held_bytes))
        self._emit(
            RelayProgressed(
                done.low,
                self._publisher.pending,
                self._progress.missing_count,
                self._publisher.oldest_age_seconds,
            )
        )

    async def read(self) -> bool:
        """Read what is new and what was missing, and hand it on; True where there may be more."""
        progress, limit = self._progress, self._read_rows
        reading = await log.read(self._session, progress.missing, progress.high, limit)
        if reading.entries:
            failpoint.reach("relay.read")
        taken = progress.take([entry.seq for entry in reading.entries], xmin=reading.xmin, limit=limit)
        for entry in reading.entries[:taken]:
            self._publisher.add(OutboxMessage(entry))
        self._read_rows = next_rows(limit, reading.entries)
        return len(reading.entries) >= limit

    async def look_after_broker(self) -> None:
        """Make streams that are gone, and see what the broker has lost: also while nothing is taken."""
        await self._watch.look(self._progress.done.low, self._progress.high)

    async def replay_losses(self) -> None:
        """Replay what the broker lost, beside the live rows."""
        publisher = self._publisher
        has_room = publisher.replays < MOST_ROWS and publisher.replay_bytes < READ_BYTES
        if self._watch.is_replaying and has_room:
            for message in await self._watch.next_replay(is_settled=self._publisher.replays == 0):
                self._publisher.add(message)

    async def replay_on_request(self) -> None:
        """Send again what somebody has asked for, beside the live rows; not while the broker has losses."""
        replays = self._replays
        for entry in await replays.next(self._progress.high, is_held=self._watch.is_replaying):
            self._publisher.add(OutboxMessage(entry, is_replay=True, on_receipt=replays.note))

    async def end(self) -> None:
        """Send nothing more."""
        self._publisher.close()
        await self._watch.end()
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)

    def check(self) -> None:
        """Raise what ended the sending, if anything did: that is a bug, not a fault that passes."""
        if self._sending.done():
            self._sending.result()


class Relay:
    """Leads, or stands by to."""

    def __init__(
        self,
        *,
        database: Database,
        transport: Transport,
        owner: str,
        lease_seconds: float,
        busy_seconds: float,
        idle_seconds: float,
        window: int,
        max_bytes: int,
        replay_seconds: float,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._database = database
        self._transport = transport
        self._lease = LeaderLease("relay", owner, lease_seconds)
        self._busy_seconds = busy_seconds
        self._idle_seconds = idle_seconds
        self._most_pending = 2 * window
        self._max_bytes = max_bytes
        self._replay_seconds = replay_seconds
        self._emit = emit
        self._spans = spans
        self._daemon = PeriodicService("relay", self._tick, emit=emit)
        self._lead: RelayLeadership | None = None
        self._resources = AsyncExitStack()

    async def run(self) -> None:
        """Relay until stopped."""
        await self._transport.on_nudge(subjects.RELAY_NUDGE, self._daemon.wake)
        await self._daemon.run()
        if self._lead is not None:
            await self._hand_over(self._lead)

    def stop(self) -> None:
        """Ask for the end."""
        self._daemon.stop()

    async def _tick(self) -> float:
        if self._lead is None and not await self._take():
            return _STANDBY_SECONDS
        try:
            return await self._lead_on()
        except GrnsError as error:
            # Whatever is known may be wrong on the next connection: the cursor is read again.
            await self._follow(str(error))
            raise

    async def _lead_on(self) -> float:
        if self._lead is None:
            return _STANDBY_SECONDS
        lead = self._lead
        lead.check()
        await lead.keep()
        await lead.look_after_broker()
        if lead.is_full(self._most_pending):
            return _FULL_PAUSE_SECONDS
        has_more = await lead.read()
        await lead.keep()
        await lead.replay_losses()
        await lead.keep()
        await lead.replay_on_request()
        if has_more:
            return 0.0
        return self._busy_seconds if lead.is_busy else self._idle_seconds

    async def _take(self) -> bool:
        try:
            session = await self._resources.enter_async_context(self._database.session())
            if not await self._lease.acquire(session):
                await self._resources.aclose()
                return False
            cursor = await log.read_cursor(session)
        except GrnsError:
            await self._resources.aclose()
            raise
        self._lead = RelayLeadership(
            session,
            self._lease,
            cursor,
            transport=self._transport,
            max_bytes=self._max_bytes,
            replay_seconds=self._replay_seconds,
            emit=self._emit,
            spans=self._spans,
        )
        self._emit(RelayBecameLeader(self._lease.epoch, cursor.low))
        return True

    async def _hand_over(self, lead: RelayLeadership) -> None:
        """Persist what is done and give the lead up, so that a standby need neither wait nor repeat."""
        try:
            await lead.persist()
            await self._follow("stopped")
            await self._lease.release(self._database)
        except GrnsError as error:
            await self._follow(str(error))

    async def _follow(self, reason: str) -> None:
        lead, self._lead = self._lead, None
        if lead is not None:
            await lead.end()
            self._emit(RelayStandby(reason))
        await self._resources.aclose()
