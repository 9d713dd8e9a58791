"""Detect what the broker has lost although it had acknowledged it, and replay it.

A stream that was created again has another epoch. A stream that lost its end is shorter than what it
acknowledged, acknowledges a new message with a number that it gave out before, or has another message there:
the leader that saw the numbers go back may have died before it persisted that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from grns.errors import DriftError, GrnsError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.messages import Receipt, StoredMessage, StreamState, whole_number
from grns.outbox import log
from grns.outbox.message import OutboxMessage
from grns.postgres.database import Session
from grns.telemetry.service_signals import BrokerLost, EventsReplayed, TickFailed
from grns.telemetry.signal import Emit

_LOOK_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 1.0
_SUSPECT = "to be looked at"  # the epoch of a stream that the next leader must check
# Commands are not replayed: fallback polling finds their tasks.
_PATTERNS = {subjects.EVT_STREAM: r"^evt\.", subjects.DLQ_STREAM: r"^dlq\."}


@dataclass(slots=True)
class _Page:
    after: int
    left: int


@dataclass(slots=True)
class LossReplay:
    """A range of the log that is sent again, page by page, to the streams that have lost it.

    `since` is its start. A stream that loses messages again during the replay has lost them from there on:
    nothing proves that a subscriber received them in between.
    """

    since: int
    after: int  # all up to here has been read
    up_to: int
    patterns: frozenset[str]
    events: int = 0
    _pages: deque[_Page] = field(default_factory=deque)

    @property
    def lost(self) -> log.LostRange:
        """Where it starts, and up to where the broker has it again: the next leader resumes there."""
        return log.LostRange(self.since, self._pages[0].after if self._pages else self.after)

    @property
    def is_read(self) -> bool:
        """Return whether all of it has been read."""
        return self.after >= self.up_to

    def take(self, after: int, entries: Sequence[log.LogEntry]) -> Callable[[Receipt], None]:
        """Note a page that ends at `after`; return the function that takes its receipts."""
        page = _Page(self.after, len(entries))
        if entries:
            self._pages.append(page)
        self.after = after
        self.events += len(entries)
        return partial(self._note, page)

    def extend(self, lost: log.LostRange, up_to: int, pattern: str) -> None:
        """Send more again: messages in flight may be lost with the rest."""
        self.after = min(self.lost.settled, lost.settled)
        self.since = min(self.since, lost.since)
        self.up_to = max(self.up_to, up_to)
        self.patterns |= {pattern}
        self._pages.clear()

    def _note(self, page: _Page, _receipt: Receipt) -> None:
        page.left -= 1
        while self._pages and not self._pages[0].left:
            self._pages.popleft()


@dataclass(slots=True)
class StreamPosition:
    """The epoch and highest number that one stream has acknowledged, and its latest message of ours.

    What may have been lost is `doubted` until the stream has been asked for it: the message that was the last
    one then. What is acknowledged meanwhile may stand in its place.
    """

    stream: str
    epoch: str | None
    last_seq: int
    lost: log.LostRange | None  # an earlier leader has not sent it again
    last: log.Mark | None = None
    went_back: bool = False
    doubted: log.Mark | None = None
    doubts: int = 0  # how often it was doubted

    @property
    def mark(self) -> log.Mark | None:
        """The message that the stream is to be asked for."""
        return self.doubted or self.last

    def doubt(self) -> None:
        """Note that what was acknowledged so far may be lost."""
        self.doubted = self.mark
        self.doubts += 1

    def note(self, receipt: Receipt, row: int) -> bool:
        """Note one acknowledgement; return True if its number was given out before."""
        is_odd = receipt.seq <= self.last_seq and not receipt.duplicate
        self.went_back = self.went_back or is_odd
        if receipt.seq > self.last_seq:
            self.last_seq = receipt.seq
            if not receipt.duplicate:  # else the stream may have it of another row, before a failover
                self.last = log.Mark(receipt.seq, row)
        return is_odd

    def loss(self, state: StreamState, acknowledged: int, went_back: bool) -> str | None:
        """Return why acknowledged messages are lost; None if they are not."""
        if self.epoch is None:
            return None
        if state.epoch != self.epoch:
            return "the stream was made anew"
        if state.last_seq < acknowledged or went_back:
            return "the stream lost its end"
        return None


@dataclass(frozen=True)
class StreamFinding:
    """The state of a stream, and the `reason` if it has lost messages.

    `survived` is the log number of its last message, if only its end is lost and this message was stored
    before the loss. All rows up to `low` were published. It was asked after so many `doubts`.
    """

    position: StreamPosition
    doubts: int
    state: StreamState
    reason: str | None
    survived: int | None
    low: int


@dataclass(slots=True, kw_only=True)
class StreamLossDetector:
    """Compares the streams with what they acknowledged, every 30 s and after each suspicious answer."""

    session: Session
    transport: JetStream
    positions: dict[str, StreamPosition]
    replay_seconds: float
    emit: Emit
    _look_at: float = 0.0
    _looked_at: float = 0.0
    _asking: asyncio.Task[list[StreamFinding]] | None = None
    _replay: LossReplay | None = None
    _pages: log.RangeReader = field(init=False)

    def __post_init__(self) -> None:
        self._pages = log.RangeReader(self._read)

    @property
    def places(self) -> dict[str, log.LastAcknowledged]:
        """Positions to persist: the next leader takes over losses that are not replayed yet."""
        return {stream: self._place(position) for stream, position in self.positions.items()}

    def _place(self, position: StreamPosition) -> log.LastAcknowledged:
        epoch = _SUSPECT if position.went_back else position.epoch
        return log.LastAcknowledged(epoch, position.last_seq, self._lost(position), position.mark)

    def _lost(self, position: StreamPosition) -> log.LostRange | None:
        replay = self._replay
        if replay is not None and _PATTERNS[position.stream] in replay.patterns:
            return replay.lost
        return position.lost

    @property
    def is_replaying(self) -> bool:
        """Return whether a loss is being replayed."""
        return self._replay is not None

    def note(self, receipt: Receipt, row: int) -> None:
        """Note one acknowledgement, of the message of this row of the log."""
        position = self.positions.get(receipt.stream)
        if position is not None and position.note(receipt, row):
            self.suspect()

    def suspect(self) -> None:
        """Ask the streams again soon."""
        for position in self.positions.values():
            position.doubt()
        self._look_at = min(self._look_at, self._looked_at + _LOOK_AGAIN_SECONDS)

    async def look(self, low: int, high: int) -> None:
        """Check, if it is time, whether the streams exist and hold what they acknowledged.

        All rows up to `low` are published, so none of them is sent as a live row again; nothing beyond `high`
        has been read. A background task asks the broker, so that the leader does not wait; a later call takes
        its answer.
        """
        for position in self.positions.values():
            if position.lost is not None:
                self._send_again(position, position.lost, high)
        if self._asking is None:
            if time.monotonic() >= self._look_at:
                self._asking = asyncio.create_task(self._ask(low))
        elif self._asking.done():
            answered, self._asking = self._asking, None
            for finding in answered.result():
                await self._take_in(finding, high)

    async def end(self) -> None:
        """Stop asking the streams."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, low: int) -> list[StreamFinding]:
        """Create missing streams, and ask each for its state; messages are sent meanwhile."""
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + _LOOK_SECONDS
        known = {
            position.stream: (position.last_seq, position.mark, position.doubts, position.went_back)
            for position in self.positions.values()
        }
        findings: list[StreamFinding] = []
        try:
            await self.transport.provision()
        except GrnsError as error:  # an error of one stream says nothing about losses of the others
            self._fail(error)
        for position in self.positions.values():
            if not self.transport.is_connected:
                break
            try:
                findings.append(await self._find(position, *known[position.stream], low))
            except GrnsError as error:
                self._fail(error)
        return findings

    def _fail(self, error: GrnsError) -> None:
        """Report a stream that could not be checked; check again soon if the error may be temporary."""
        self.emit(TickFailed("broker_watch", str(error)))
        if not isinstance(error, DriftError):
            self._look_at = self._looked_at + _LOOK_AGAIN_SECONDS

    async def next_replay(self, *, is_settled: bool) -> Sequence[OutboxMessage]:
        """Return the messages to replay next; end the replay once all are acknowledged (`is_settled`)."""
        if (replay := self._replay) is None:
            return []
        if replay.is_read:
            if is_settled:
                self.emit(EventsReplayed(replay.events))
                self._replay = None
            return []
        after, entries = await self._pages.next(replay.after, replay.up_to)
        on_receipt = replay.take(after, entries)
        return [OutboxMessage(entry, is_replay=True, on_receipt=on_receipt) for entry in entries]

    async def _read(self, after: int, up_to: int, limit: int, most_bytes: int) -> log.LogRange:
        patterns = sorted(self._replay.patterns) if self._replay is not None else []
        return await log.read_range(self.session, after, up_to, limit, most_bytes, patterns)

    async def _find(
        self,
        position: StreamPosition,
        acknowledged: int,
        mark: log.Mark | None,
        doubts: int,
        went_back: bool,
        low: int,
    ) -> StreamFinding:
        """Compare one stream with what it had acknowledged when the check began."""
        state = await self.transport.state(position.stream)
        reason = position.loss(state, acknowledged, went_back)
        if reason is None and position.epoch is not None and mark is not None:
            found = await self.transport.message_at(position.stream, mark.seq)
            if found is not None and _row_of(found) != mark.row:  # None: it was deleted since
                went_back, reason = True, "the stream lost its end"
        is_cut = reason is not None and state.epoch == position.epoch and not went_back
        last = await self.transport.last_message(position.stream) if is_cut else None
        survived = _row_of(last) if last is not None else None
        if survived is not None and survived > low:
            survived = None  # it may have been stored just now, after the loss
        return StreamFinding(position, doubts, state, reason, survived, low)

    async def _take_in(self, finding: StreamFinding, high: int) -> None:
        """Replay what a stream has lost, and note its state."""
        position, state, reason = finding.position, finding.state, finding.reason
        if reason is not None:
            since = await self._lost_since(finding, high)
            self.emit(BrokerLost(reason, since))
            self._send_again(position, log.LostRange(since, since), high)
            position.went_back = False
            position.last_seq, position.last, position.doubted = state.last_seq, None, None
        elif position.doubts == finding.doubts:
            position.doubted = None
        position.epoch = state.epoch

    async def _lost_since(self, finding: StreamFinding, high: int) -> int:
        """Return the number of the log after which messages may be lost."""
        # Seconds before the last published row, not before now: the broker may have been away for longer.
        first = await log.first_near(self.session, finding.low, self.replay_seconds, high)
        since = max(0, first - 1 - log.MARGIN_ROWS)
        if finding.survived is not None:
            since = max(since, min(finding.survived, high) - log.MARGIN_ROWS)
        lost = self._lost(finding.position)
        return since if lost is None else min(since, lost.since)

    def _send_again(self, position: StreamPosition, lost: log.LostRange, high: int) -> None:
        """Replay what one stream has lost, together with a replay in progress."""
        pattern, position.lost = _PATTERNS[position.stream], None
        if self._replay is None:
            self._replay = LossReplay(lost.since, lost.settled, high, frozenset({pattern}))
        else:
            self._replay.extend(lost, high, pattern)


def _row_of(message: StoredMessage) -> int | None:
    return whole_number(message.headers.get("Grns-Seq", ""))


def positions(places: Mapping[str, log.LastAcknowledged]) -> dict[str, StreamPosition]:
    """Return the positions of the streams whose losses are replayed, as the cursor has them."""
    found = {
        stream: StreamPosition(stream, place.epoch, place.last_seq, place.lost, place.mark)
        for stream, place in ((stream, places[stream]) for stream in _PATTERNS)
    }
    for position in found.values():
        position.doubt()  # the leader before may have seen its numbers go back, and persisted nothing
    return found
