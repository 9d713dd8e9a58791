"""Publish what the relay has read, in waves: of each task at most one row is in flight in a stream.

The first wave has the first row of each task, the second one the second, and so on. A wave begins once the
broker has answered for all of the wave before it. Rows that the broker does not take go to the ordered
publisher, which tries each again; later rows of their tasks follow there until it has published them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

from grns.errors import BrokerRefusedError, GrnsError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.messages import Message, Receipt
from grns.outbox.log import LogEntry, Span
from grns.outbox.message import OutboxMessage, command_of, message_of
from grns.outbox.ordered_publisher import OrderedPublisher
from grns.telemetry import failpoint
from grns.telemetry.spans import NO_SPANS, Spans

# The first part of a kind names its stream.
STREAMS = ("cmd", "evt", "dlq")
# So many commands of one wave and subject share messages.
_MANY_COMMANDS = 64
# Payloads of events that share a message, in characters; a larger one goes alone.
_MOST_SHARED = 64 * 1024


def waves(entries: Iterable[LogEntry]) -> list[list[LogEntry]]:
    """Return rows of one stream in waves: the n-th row of each task is in the n-th wave."""
    places: dict[str, int] = {}
    found: list[list[LogEntry]] = []
    for entry in entries:
        key = entry.task_id or entry.message_id
        place = places.get(key, 0)
        places[key] = place + 1
        if place == len(found):
            found.append([])
        found[place].append(entry)
    return found


def chunks(wave: Sequence[LogEntry], *, events_per_message: int = 1) -> Iterator[Sequence[LogEntry]]:
    """Return the rows of a wave in messages; rows that share one have one subject.

    Many commands of one priority subject share messages. Such a message goes to one worker, which gives back
    what it has no room for: few commands stay apart. Events share messages if the setting allows it.
    """
    commands: dict[tuple[str, str], list[LogEntry]] = {}
    events: dict[tuple[str, str], list[LogEntry]] = {}
    for entry in wave:
        if entry.route is not None and entry.kind == subjects.EXECUTE:
            commands.setdefault((entry.workspace, entry.route), []).append(entry)
        elif events_per_message > 1 and entry.kind.startswith("evt."):
            events.setdefault((entry.workspace, entry.kind), []).append(entry)
        else:
            yield (entry,)
    for rows in commands.values():
        size = subjects.MOST_ENVELOPES if len(rows) >= _MANY_COMMANDS else 1
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
    for rows in events.values():
        yield from _shared(rows, events_per_message)


def _shared(rows: Sequence[LogEntry], most: int) -> Iterator[Sequence[LogEntry]]:
    """Return rows in parts of at most `most`, whose payloads together stay small."""
    start, size = 0, 0
    for place, entry in enumerate(rows):
        size += len(entry.payload)
        if place > start and (place - start == most or size > _MOST_SHARED):
            yield rows[start:place]
            start, size = place, len(entry.payload)
    yield rows[start:]


@dataclass(slots=True, eq=False)
class _Reading:
    """Rows that were read together, and how many of their messages are left.

    `handed_over` counts, by a row's number, those messages that the ordered publisher has taken over and not
    published yet.
    """

    entries: Sequence[LogEntry]
    left: int
    handed_over: dict[int, int] = field(default_factory=dict)

    def spans(self) -> Iterator[Span]:
        """Return the numbers that the broker has once nothing is left, as spans."""
        numbers = (entry.seq for entry in self.entries if not self.handed_over.get(entry.seq))
        for _, run in groupby(
            enumerate(numbers), lambda place_and_number: place_and_number[1] - place_and_number[0]
        ):
            found = [number for _, number in run]
            yield found[0], found[-1] + 1


@dataclass(slots=True, eq=False)
class _Wave:
    """The answers that a wave waits for."""

    unanswered: int = 1  # until all of it has been sent
    answered: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end_one(self) -> None:
        """Count an answer."""
        self.unanswered -= 1
        if not self.unanswered and not self.answered.done():
            self.answered.set_result(None)


@dataclass(slots=True, kw_only=True, eq=False)
class WavePublisher:
    """Sends rows through the transport's window, the streams side by side.

    `on_done` receives spans of numbers that the broker has; `may_send` is asked before each send.
    """

    transport: JetStream
    ordered: OrderedPublisher
    on_done: Callable[[int, int], None]
    on_receipt: Callable[[Receipt, int], None]  # with the row that the headers of the message name
    on_trouble: Callable[[], None]
    may_send: Callable[[], bool]
    max_bytes: int
    events_per_message: int = 1
    spans: Spans = NO_SPANS
    pending: int = 0
    pending_bytes: int = 0
    _readings: deque[_Reading] = field(default_factory=deque)
    _waiting: dict[str, deque[tuple[_Reading, list[LogEntry]]]] = field(
        default_factory=lambda: {stream: deque() for stream in STREAMS}
    )
    _work: dict[str, asyncio.Event] = field(
        default_factory=lambda: {stream: asyncio.Event() for stream in STREAMS}
    )
    _is_closed: bool = False

    @property
    def oldest_age_seconds(self) -> float:
        """The age of the first row that is not done, 0 if there is none."""
        if not self._readings:
            return 0.0
        return max(0.0, (datetime.now(UTC) - self._readings[0].entries[0].created_at).total_seconds())

    def add(self, entries: Sequence[LogEntry]) -> None:
        """Queue what has been read, behind what was read before."""
        parts: dict[str, list[LogEntry]] = {}
        for entry in entries:
            parts.setdefault(entry.kind[:3], []).append(entry)
            if (route := entry.route) is not None and entry.kind != subjects.EXECUTE and route[0] != "@":
                parts.setdefault("cmd", []).append(command_of(entry, route))
        reading = _Reading(entries, sum(len(part) for part in parts.values()))
        self.pending += reading.left
        self.pending_bytes += sum(len(entry.payload) for part in parts.values() for entry in part)
        self._readings.append(reading)
        for stream, part in parts.items():
            self._waiting[stream].append((reading, part))
            self._work[stream].set()

    def close(self) -> None:
        """Ignore answers that still come."""
        self._is_closed = True

    async def run(self, stream: str) -> None:
        """Publish the rows of one stream until cancelled; raise an unexpected error of an answer."""
        waiting, work = self._waiting[stream], self._work[stream]
        while True:
            while not waiting:
                work.clear()
                await work.wait()
            reading, entries = waiting.popleft()
            for wave in waves(entries):
                await self._publish(reading, wave)

    async def _publish(self, reading: _Reading, entries: Sequence[LogEntry]) -> None:
        """Publish one wave, and wait for all its answers."""
        wave, room, max_bytes = _Wave(), 0, 0
        for chunk in chunks(entries, events_per_message=self.events_per_message):
            if not room:
                room = await self.transport.ready()
                max_bytes = min(self.max_bytes, self.transport.max_message_bytes)
            message = message_of(chunk)
            if self.ordered.takes_over(chunk) or len(message.body) > max_bytes or not self.may_send():
                self._hand_over(reading, chunk)
            else:
                room -= 1
                self._send(reading, wave, chunk, message)
        failpoint.reach("relay.wave_sent")
        wave.end_one()
        await wave.answered

    def _send(self, reading: _Reading, wave: _Wave, chunk: Sequence[LogEntry], message: Message) -> None:
        began_ns = time.time_ns() if self.spans.is_on else 0

        def answered(answer: Receipt | GrnsError) -> None:
            if self._is_closed:
                return
            try:
                self._settle(reading, chunk, answer, began_ns)
            except Exception as error:  # `run` raises it: this wave would never end
                if not wave.answered.done():
                    wave.answered.set_exception(error)
            else:
                wave.end_one()

        wave.unanswered += 1
        self.transport.post(message, answered)
        failpoint.reach("relay.published")

    def _settle(
        self, reading: _Reading, chunk: Sequence[LogEntry], answer: Receipt | GrnsError, began_ns: int
    ) -> None:
        if not isinstance(answer, Receipt):
            if not isinstance(answer, BrokerRefusedError):
                self.on_trouble()
            self._hand_over(reading, chunk)
            return
        failpoint.reach("relay.acknowledged")
        self.ordered.note_published(chunk, began_ns)
        self.on_receipt(answer, chunk[0].seq)
        self._end(reading, chunk)

    def _hand_over(self, reading: _Reading, chunk: Sequence[LogEntry]) -> None:
        """Leave messages to the ordered publisher."""
        note = partial(self._note_ordered, reading)
        for entry in chunk:
            reading.handed_over[entry.seq] = reading.handed_over.get(entry.seq, 0) + 1
            self.ordered.add(OutboxMessage(entry, on_done=note))
        self._end(reading, chunk)

    def _note_ordered(self, reading: _Reading, seq: int) -> None:
        """Note that the ordered publisher has published one of a row's messages."""
        reading.handed_over[seq] -= 1
        if not reading.left and not reading.handed_over[seq]:
            self.on_done(seq, seq + 1)

    def _end(self, reading: _Reading, chunk: Sequence[LogEntry]) -> None:
        self.pending -= len(chunk)
        for entry in chunk:
            self.pending_bytes -= len(entry.payload)
        reading.left -= len(chunk)
        if reading.left:
            return
        self._readings.remove(reading)
        spans = list(reading.spans())
        reading.entries = ()  # messages that the ordered publisher holds keep the reading
        for start, end in spans:
            self.on_done(start, end)
