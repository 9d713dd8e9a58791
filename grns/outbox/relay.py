"""The relay: reads the event log, and has it published in order.

One relay leads at a time: it holds a lease in Postgres, and stops sending by its own clock before another
relay can hold it. Its progress is persisted about once a second; after a crash, rows published since then
are sent again under the same message ids.
`wave_publisher.py` sends, `ordered_publisher.py` what the broker refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from grns.errors import GrnsError, UnavailableError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.follow_nudges import FollowNudges
from grns.outbox import log
from grns.outbox.log import FIRST_ROWS, MOST_ROWS, READ_BYTES, LogEntry, next_rows
from grns.outbox.message import OutboxMessage
from grns.outbox.ordered_publisher import OrderedPublisher
from grns.outbox.replay import Replayer
from grns.outbox.stream_loss import StreamLossDetector, positions
from grns.outbox.watermark import Watermark
from grns.outbox.wave_publisher import STREAMS, WavePublisher
from grns.postgres.database import Database, Session
from grns.runtime.leader import LeaderLease
from grns.runtime.service import PeriodicService
from grns.settings.groups import RelaySettings
from grns.telemetry import failpoint
from grns.telemetry.service_signals import RelayBecameLeader, RelayHeldUp, RelayProgressed, RelayStandby
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans

_STANDBY_SECONDS = 0.5
_FULL_PAUSE_SECONDS = 0.01
# Pause between two reads without a nudge: while messages are in flight, and while none is.
_BUSY_SECONDS, _IDLE_SECONDS = 0.1, 0.3
# With fewer rows than these from one renewal of the lease to the next, commits wake the relay.
_FEW_ROWS = 100
_CHANNEL = "grns_relay"  # of grns.wake_relay()
_WAITING = "evt.task.waiting"


class RelayLeadership:
    """The work of the leading relay: one connection, one epoch, published rows and rows in flight."""

    def __init__(
        self,
        session: Session,
        lease: LeaderLease,
        cursor: log.RelayCursor,
        *,
        transport: JetStream,
        nudges: FollowNudges,
        settings: RelaySettings,
        emit: Emit,
        spans: Spans,
    ) -> None:
        self._session = session
        self._transport = transport
        self._lease = lease
        self._nudges = nudges
        self._cursor = cursor
        self._emit = emit
        self._read_rows = FIRST_ROWS
        self._new_rows = 0
        self._progress = Watermark(cursor.low, cursor.published)
        self._watch = StreamLossDetector(
            session=session,
            transport=transport,
            positions=positions(cursor.places),
            replay_seconds=settings.relay_replay_seconds,
            emit=emit,
        )
        self._replays = Replayer(session=session, epoch=lease.epoch, emit=emit)
        self._publisher = OrderedPublisher(
            transport=transport,
            on_receipt=self._watch.note,
            on_trouble=self._watch.suspect,
            may_send=lambda: time.monotonic() < lease.expires_at,
            max_bytes=settings.envelope_max_bytes,
            emit=emit,
            spans=spans,
        )
        self._waves = WavePublisher(
            transport=transport,
            ordered=self._publisher,
            on_done=self._progress.done.add_span,
            on_receipt=self._watch.note,
            on_trouble=self._watch.suspect,
            may_send=self._publisher.may_send,
            max_bytes=settings.envelope_max_bytes,
            events_per_message=settings.relay_events_per_message,
            spans=spans,
        )
        senders = (self._publisher.run(), *(self._waves.run(stream) for stream in STREAMS))
        self._sending = [asyncio.create_task(sender) for sender in senders]

    def is_full(self, most_pending: int) -> bool:
        """Return whether enough rows are read and not acknowledged.

        Replays do not count: no live row waits for them. Messages that a stream refuses count only if there
        are very many.
        """
        publisher, waves = self._publisher, self._waves
        return (
            publisher.in_flight + waves.pending >= most_pending
            or publisher.in_flight_bytes + waves.pending_bytes >= READ_BYTES
            or publisher.holds_too_much
        )

    @property
    def is_busy(self) -> bool:
        """Return whether rows have been read that are not acknowledged."""
        return self._pending > 0

    @property
    def _pending(self) -> int:
        return self._publisher.pending + self._waves.pending

    async def keep(self) -> None:
        """Persist and renew if it is time; raise `UnavailableError` if the lease is lost."""
        if self._lease.is_due:
            await self.persist()

    async def persist(self) -> None:
        """Persist the progress, and renew the lease in the same statement."""
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
        is_idle, self._new_rows = self._new_rows < _FEW_ROWS, 0
        xid = await log.hold(self._session, self._lease, self._cursor, is_idle=is_idle)
        if xid is None:
            raise UnavailableError("another relay leads now, or Postgres was failed over")
        self._progress.bound(xid)
        self._publisher.emit_published()
        if self._publisher.holds_too_much:
            self._emit(RelayHeldUp(self._publisher.held, self._publisher.held_bytes))
        self._emit(
            RelayProgressed(
                done.low,
                self._pending,
                self._progress.missing_count,
                max(self._publisher.oldest_age_seconds, self._waves.oldest_age_seconds),
            )
        )

    async def read(self) -> bool:
        """Read new and missing rows and queue them; return True if there may be more."""
        progress, limit = self._progress, self._read_rows
        reading = await log.read(self._session, progress.missing, progress.high, limit)
        if reading.entries:
            failpoint.reach("relay.read")
        taken = progress.take([entry.seq for entry in reading.entries], xmin=reading.xmin, limit=limit)
        if taken:
            self._new_rows += taken
            self._waves.add(reading.entries[:taken])
            if self._nudges.are_wanted and any(entry.kind == _WAITING for entry in reading.entries[:taken]):
                self._nudges.note()  # it may wait for room that there is
            await self._tell_agents(reading.entries[:taken])
        self._read_rows = next_rows(limit, reading.entries)
        return len(reading.entries) >= limit

    async def _tell_agents(self, entries: Sequence[LogEntry]) -> None:
        """Hint at tasks that only some agents may run: they have no command."""
        routes = {
            (one.workspace, one.route) for one in entries if one.route is not None and one.route[0] == "@"
        }
        for workspace, route in routes:
            _, agent_type, wanted = route.split("@", 2)
            await self._transport.nudge(subjects.routed_nudge(workspace, agent_type), wanted.encode())

    async def look_after_broker(self) -> None:
        """Create missing streams, and detect what the broker has lost."""
        await self._watch.look(self._progress.done.low, self._progress.high)

    async def replay_losses(self) -> None:
        """Replay what the broker lost, along with live rows."""
        publisher = self._publisher
        has_room = publisher.replays < MOST_ROWS and publisher.replay_bytes < READ_BYTES
        if self._watch.is_replaying and has_room:
            for message in await self._watch.next_replay(is_settled=self._publisher.replays == 0):
                self._publisher.add(message)

    async def replay_on_request(self) -> None:
        """Replay on request, along with live rows; not while a loss is replayed."""
        replays = self._replays
        for entry in await replays.next(self._progress.high, is_held=self._watch.is_replaying):
            self._publisher.add(OutboxMessage(entry, is_replay=True, on_receipt=replays.note))

    async def end(self) -> None:
        """Stop sending."""
        self._publisher.close()
        self._waves.close()
        await self._watch.end()
        for sending in self._sending:
            sending.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def check(self) -> None:
        """Raise the error that ended the sending, if any: it is a bug."""
        for sending in self._sending:
            if sending.done():
                sending.result()


@dataclass(slots=True, kw_only=True, eq=False)
class Relay(PeriodicService):
    """Leads, or waits as a standby."""

    database: Database
    transport: JetStream
    lease: LeaderLease
    settings: RelaySettings
    spans: Spans = NO_SPANS
    name: str = "relay"
    _leadership: RelayLeadership | None = field(default=None, init=False)
    _has_heard: bool = field(default=False, init=False)
    _nudges: FollowNudges = field(init=False)
    _resources: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)

    def __post_init__(self) -> None:
        self._nudges = FollowNudges(self.transport)

    async def begin(self) -> None:
        """Subscribe to nudges from processes that commit events, and from who waits for some."""
        await self._nudges.begin()
        await self.transport.on_nudge(subjects.RELAY_NUDGE, self.wake)

    async def end(self) -> None:
        """Persist the progress and release the lease, so that a standby takes over at once."""
        if self._leadership is None:
            return
        try:
            await self._leadership.persist()
            await self._stand_by("stopped")
            await self.lease.release(self.database)
        except GrnsError as error:
            await self._stand_by(str(error))

    async def tick(self) -> float:
        """Lead for one round, if this relay leads or can."""
        leadership = self._leadership or await self._acquire()
        if leadership is None:
            return _STANDBY_SECONDS
        if self._has_heard:  # the tasks may need others
            self._has_heard = False
            await self.transport.nudge(subjects.FOLLOW_NUDGE)
        try:
            return await self._lead(leadership)
        except GrnsError as error:
            # The state in memory may be wrong on the next connection: the cursor is read again.
            await self._stand_by(str(error))
            raise

    async def _lead(self, leadership: RelayLeadership) -> float:
        leadership.check()
        await leadership.keep()
        await leadership.look_after_broker()
        if leadership.is_full(2 * self.settings.relay_window):
            return _FULL_PAUSE_SECONDS
        has_more = await leadership.read()
        await leadership.keep()
        await leadership.replay_losses()
        await leadership.keep()
        await leadership.replay_on_request()
        if has_more:
            return 0.0
        return _BUSY_SECONDS if leadership.is_busy else _IDLE_SECONDS

    async def _acquire(self) -> RelayLeadership | None:
        """Become the leader, on a connection of its own; None while another relay leads."""
        try:
            session = await self._resources.enter_async_context(self.database.session())
            if not await self.lease.acquire(session):
                await self._resources.aclose()
                return None
            await self._resources.enter_async_context(session.listening(_CHANNEL, self._hear))
            cursor = await log.read_cursor(session)
        except GrnsError:
            await self._resources.aclose()
            raise
        self._leadership = RelayLeadership(
            session,
            self.lease,
            cursor,
            transport=self.transport,
            nudges=self._nudges,
            settings=self.settings,
            emit=self.emit,
            spans=self.spans,
        )
        self.emit(RelayBecameLeader(self.lease.epoch, cursor.low))
        return self._leadership

    def _hear(self) -> None:
        """Note that a user has committed tasks."""
        self._has_heard = True
        self.wake()

    async def _stand_by(self, reason: str) -> None:
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            await leadership.end()
            self.emit(RelayStandby(reason))
        await self._resources.aclose()
