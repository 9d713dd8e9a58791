"""Detect what the broker has lost although it had acknowledged it, and replay it.

A stream that was created again has another epoch. A stream that lost its end is shorter than what it
acknowledged, acknowledges a new message with a number that it gave out before, or has another message there,
or none: the leader that saw the numbers go back may have died before it persisted that.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# Doubts that come so soon after each other are of one trouble: no broker is gone and back in between.
_ONE_TROUBLE_SECONDS = 0.05
_MOST_DOUBTED = 64
# After so long without an answer the stream may be another than before, though nothing failed.
_PAUSE_SECONDS = 1.0
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
    """The epoch and highest number that one stream has acknowledged, and the row of the log that has it.

    What may have been lost is `doubted` until the stream has been asked for it: the message that was the last
    one then, with the number of the doubt and until when others are of the same trouble. What is acknowledged
    meanwhile may stand in its place, and may be lost in turn before the stream has answered: there may be
    several.
    """

    stream: str
    epoch: str | None
    last_seq: int
    lost: log.LostRange | None  # an earlier leader has not sent it again
    last_row: int | None = None
    noted_at: float = 0.0
    went_back: bool = False
    is_new: bool = False  # since a loss was found nothing beyond it was acknowledged
    doubted: tuple[tuple[log.Mark, int, float], ...] = ()
    doubts: int = 0  # how often it was doubted
    low: int | None = None  # all rows up to here were published when the stream was first asked about a doubt

    @property
    def marks(self) -> tuple[log.Mark, ...]:
        """The messages that the stream is to be asked for, in order."""
        marks = [mark for mark, _, _ in self.doubted]
        last = self._last
        return tuple(marks if last is None or last in marks[-1:] else [*marks, last])

    @property
    def _last(self) -> log.Mark | None:
        return None if self.last_row is None else log.Mark(self.last_seq, self.last_row)

    def doubt(self, now: float, seconds: float = _ONE_TROUBLE_SECONDS) -> None:
        """Note that what was acknowledged so far may be lost.

        Doubts of the next `seconds` are of the same trouble.
        """
        self.doubts += 1
        last = self._last
        if last is None:
            return
        before, until = self.doubted, now + seconds
        if before and (before[-1][0] == last or now < before[-1][2]):
            before, until = before[:-1], before[-1][2]
        if len(before) >= _MOST_DOUBTED:
            before = before[::2]
        self.doubted = (*before, (last, self.doubts, until))

    def trust(self, doubts: int) -> None:
        """Forget what was doubted up to then: the stream has it."""
        self.doubted = tuple(one for one in self.doubted if one[1] > doubts)

    def note(self, receipt: Receipt, row: int) -> bool:
        """Note one acknowledgement; return True if its number was given out before."""
        if receipt.seq > self.last_seq:
            now = time.monotonic()
            if now - self.noted_at > _PAUSE_SECONDS:
                self.doubt(now, 0.0)  # it is before any trouble
            self.last_seq, self.last_row, self.noted_at, self.is_new = receipt.seq, row, now, False
            return False
        is_odd = not receipt.duplicate and not self.is_new
        self.went_back = self.went_back or is_odd
        return is_odd

    def begin_anew(self, state: StreamState) -> None:
        """Take the stream as it is now; what it has lost is being sent again."""
        self.last_seq, self.last_row, self.is_new = state.last_seq, None, True
        self.doubted, self.went_back = (), False

    def loss(self, state: StreamState) -> str | None:
        """Return why acknowledged messages are lost; None if they are not."""
        if self.epoch is None:
            return None
        if state.epoch != self.epoch:
            return "the stream was made anew"
        if state.last_seq < self.last_seq or self.went_back:
            return "the stream lost its end"
        return None


@dataclass(frozen=True)
class StreamFinding:
    """The state of a stream, and the `reason` if it has lost messages.

    `asked` is its position when it was asked. `survived` is the log number of its last message, if only its
    end is lost and this message was stored before the loss. All rows up to `low` were published.
    """

    asked: StreamPosition
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
        return log.LastAcknowledged(epoch, position.last_seq, self._lost(position), position.marks)

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
        now = time.monotonic()
        for position in self.positions.values():
            position.doubt(now)
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
        if not self.transport.is_connected:
            self.suspect()  # who comes back may be another
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
        for position in self.positions.values():
            position.low = low if position.low is None else position.low
        asked = [replace(position) for position in self.positions.values()]
        findings: list[StreamFinding] = []
        try:
            await self.transport.provision()
        except GrnsError as error:  # an error of one stream says nothing about losses of the others
            self._fail(error)
        for position in asked:
            if not self.transport.is_connected:
                self._look_at = self._looked_at + _LOOK_AGAIN_SECONDS
                break
            try:
                findings.append(await self._find(position, low))
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

    async def _find(self, asked: StreamPosition, low: int) -> StreamFinding:
        """Compare one stream with what it had acknowledged when the check began."""
        state = await self.transport.state(asked.stream)
        reason = asked.loss(state)
        if reason is None and asked.epoch is not None and await self._lacks(asked.stream, asked.marks):
            asked.went_back, reason = True, "the stream lost its end"
        is_cut = reason is not None and state.epoch == asked.epoch and not asked.went_back
        last = await self.transport.last_message(asked.stream) if is_cut else None
        survived = _row_of(last) if last is not None else None
        if survived is not None and (asked.low is None or survived > asked.low):
            survived = None  # it may have been stored after the loss
        return StreamFinding(asked, state, reason, survived, low)

    async def _lacks(self, stream: str, marks: Sequence[log.Mark]) -> bool:
        """Return whether a stream has lost one of these messages.

        One that was deleted with all before it is not lost: it was too old, or an operator has purged it.
        """
        answers = await asyncio.gather(*(self.transport.message_at(stream, mark.seq) for mark in marks))
        found = dict(zip(marks, answers, strict=True))
        if any(message is not None and _row_of(message) != mark.row for mark, message in found.items()):
            return True
        gone = [mark.seq for mark, message in found.items() if message is None]
        if not gone:
            return False
        state = await self.transport.state(stream)
        return state.drops_oldest and state.first_seq <= max(gone)

    async def _take_in(self, finding: StreamFinding, high: int) -> None:
        """Replay what a stream has lost, and note its state."""
        position, state, reason = self.positions[finding.asked.stream], finding.state, finding.reason
        if reason is not None:
            since = await self._lost_since(finding, high)
            self.emit(BrokerLost(reason, since))
            self._send_again(position, log.LostRange(since, since), high)
            position.begin_anew(state)
        else:
            position.trust(finding.asked.doubts)
        position.epoch, position.low = state.epoch, None

    async def _lost_since(self, finding: StreamFinding, high: int) -> int:
        """Return the number of the log after which messages may be lost."""
        # Seconds before the last published row, not before now: the broker may have been away for longer.
        first = await log.first_near(self.session, finding.low, self.replay_seconds, high)
        since = max(0, first - 1 - log.MARGIN_ROWS)
        if finding.survived is not None:
            since = max(since, min(finding.survived, high) - log.MARGIN_ROWS)
        lost = self._lost(self.positions[finding.asked.stream])
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
    return {stream: _position(stream, places[stream]) for stream in _PATTERNS}


def _position(stream: str, place: log.LastAcknowledged) -> StreamPosition:
    """Doubt all marks: the leader before may have seen the numbers go back, and persisted nothing."""
    doubted = tuple((mark, 1, 0.0) for mark in place.marks)
    last_row = next((mark.row for mark in place.marks if mark.seq == place.last_seq), None)
    return StreamPosition(
        stream, place.epoch, place.last_seq, place.lost, last_row, doubted=doubted, doubts=1
    )
