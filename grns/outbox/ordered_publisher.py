"""Publish row by row what the broker has refused, and replays: of each task one row in flight in a stream."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from grns.errors import BrokerRefusedError, GrnsError
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.messages import Receipt
from grns.outbox.log import LogEntry
from grns.outbox.message import OutboxMessage, stream_key
from grns.outbox.retry_queue import RetryQueue
from grns.telemetry import failpoint
from grns.telemetry.service_signals import MessageRefused, MessagesPublished
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans

_IDLE_SECONDS = 0.125
_REFUSED_RETRY_SECONDS = 5.0
# The relay goes on reading while streams refuse messages, until this many are held.
_MOST_HELD = 20_000
_MOST_HELD_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, kw_only=True, eq=False)
class OrderedPublisher:
    """Sends outbox messages through the transport's window.

    `may_send` is asked before each send. A refused message never occupies the window: it is held with its
    followers until its stream takes it, and held messages do not count as in flight.
    """

    transport: JetStream
    on_receipt: Callable[[Receipt, int], None]  # with the row that the headers of the message name
    on_trouble: Callable[[], None]
    may_send: Callable[[], bool]
    max_bytes: int
    emit: Emit
    spans: Spans = NO_SPANS
    pending: int = 0
    pending_bytes: int = 0
    replays: int = 0
    replay_bytes: int = 0
    held: int = 0
    held_bytes: int = 0
    _first: dict[str, OutboxMessage] = field(default_factory=dict)
    _ready: deque[OutboxMessage] = field(default_factory=deque)
    _ready_replays: deque[OutboxMessage] = field(default_factory=deque)
    _retry_queues: defaultdict[str, RetryQueue] = field(default_factory=lambda: defaultdict(RetryQueue))
    _is_closed: bool = False
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _published: Counter[str] = field(default_factory=Counter)
    _failure: Exception | None = None

    def emit_published(self) -> None:
        """Emit how many messages were published since the last call."""
        counted, self._published = self._published, Counter()
        for kind, messages in counted.items():
            self.emit(MessagesPublished(kind, messages))

    def note_published(self, entries: Sequence[LogEntry], sent_ns: int) -> None:
        """Count rows of one kind that the broker has, and record their spans unless `sent_ns` is 0."""
        self._published[entries[0].kind] += len(entries)
        for entry in entries if sent_ns else ():
            self.spans.published(
                kind=entry.kind,
                message_id=entry.message_id,
                trace_id=entry.trace_id,
                causation_id=entry.causation_id,
                task_id=entry.task_id,
                began_ns=sent_ns,
            )

    def takes_over(self, entries: Sequence[LogEntry]) -> bool:
        """Say whether a row belongs here: an earlier one of its task is here, or its stream fails."""
        return self.pending > 0 and any(
            stream_key(entry) in self._first or self._retry_queues[entry.kind[:3]].is_blocked
            for entry in entries
        )

    @property
    def in_flight(self) -> int:
        """Live rows that are not acknowledged, without held ones."""
        return self.pending - self.held - self.replays

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of the payloads of live rows in flight."""
        return self.pending_bytes - self.held_bytes - self.replay_bytes

    @property
    def holds_too_much(self) -> bool:
        """Return whether so many messages are held that the relay must stop reading."""
        return self.held >= _MOST_HELD or self.held_bytes >= _MOST_HELD_BYTES

    @property
    def oldest_age_seconds(self) -> float:
        """The age of the first waiting row, 0 if none waits."""
        first = next(iter(self._first.values()), None)
        if first is None:
            return 0.0
        return max(0.0, (datetime.now(UTC) - first.entry.created_at).total_seconds())

    def add(self, message: OutboxMessage) -> None:
        """Queue a message after those with the same key."""
        self.pending += 1
        self.pending_bytes += len(message.entry.payload)
        if message.is_replay:
            self.replays += 1
            self.replay_bytes += len(message.entry.payload)
        first = self._first.setdefault(message.key, message)
        if first is message:
            self._make_ready(message)
            return
        if first.followers is None:
            first.followers = deque()
        first.followers.append(message)
        if first.is_held:
            self._count_held(message, 1)
        if first.is_waiting and not message.is_replay:
            self._make_ready(first)  # live rows wait for it now

    async def run(self) -> None:
        """Send until closed, live rows before replays; raise an unexpected error of an answer."""
        while not self._is_closed:
            if self._failure is not None:
                raise self._failure
            self._revive()
            if not self._ready and not self._ready_replays:
                await self._idle()
                continue
            # This may wait long for a broker or for room, so `may_send` is asked after it.
            room = await self.transport.ready()
            if not self._send(room):
                await self._idle()

    def close(self) -> None:
        """Stop sending; ignore answers that still come."""
        self._is_closed = True
        self._work.set()

    def _send(self, room: int) -> int:
        """Send ready messages while `may_send` allows it and there is room; return their number."""
        max_bytes = min(self.max_bytes, self.transport.max_message_bytes)
        post, settle, has_spans = self.transport.post, self._settle, self.spans.is_on
        for sent in range(room):
            message = self._next()
            if message is None:
                return sent
            if has_spans:
                message.sent_ns = time.time_ns()
            post(message.made(max_bytes), partial(settle, message))
            failpoint.reach("relay.published")
        return room

    def _next(self) -> OutboxMessage | None:
        if not self.may_send():
            return None
        while self._ready:
            if self._may_try(message := self._ready.popleft()):
                return message
        while self._ready_replays:
            message = self._ready_replays.popleft()
            if message.is_waiting:  # else it was sent with the live rows
                message.is_waiting = False
                if self._may_try(message):
                    return message
        return None

    def _may_try(self, message: OutboxMessage) -> bool:
        """Return whether to send a message; keep it for later if its stream is blocked."""
        retries = self._retries(message)
        if message.is_trial or not retries.is_blocked:
            return True
        self._hold(message)
        retries.keep(message)
        return False

    async def _idle(self) -> None:
        self._work.clear()
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._work.wait()
        except TimeoutError:
            return

    def _make_ready(self, message: OutboxMessage) -> None:
        message.is_waiting = message.is_replay and all(
            follower.is_replay for follower in message.followers or ()
        )
        (self._ready_replays if message.is_waiting else self._ready).append(message)
        self._work.set()

    def _revive(self) -> None:
        """Move messages whose retry is due to the front, so that they are answered soon."""
        for retries in self._retry_queues.values():
            while (message := retries.due()) is not None:
                self._ready.appendleft(message)

    def _settle(self, message: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if self._is_closed:
            return
        try:
            self._handle_answer(message, answer)
        except Exception as error:  # `run` raises it: this message and its followers would never end
            self._failure = error
            self._work.set()

    def _handle_answer(self, message: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if isinstance(answer, Receipt):
            failpoint.reach("relay.acknowledged")
            self._note_taken(message)
            self.note_published((message.entry,), 0 if message.is_replay else message.sent_ns)
            self.on_receipt(answer, message.entry.seq)
            if message.on_receipt is not None:
                message.on_receipt(answer)
            self._end(message)
        elif isinstance(answer, BrokerRefusedError):
            self._refused(message, answer)
        else:
            self.on_trouble()
            self._postpone(message)

    def _refused(self, message: OutboxMessage, answer: BrokerRefusedError) -> None:
        self.emit(MessageRefused(message.entry.kind, message.entry.seq, answer.code))
        if answer.code == "too_large" and not message.is_stub:
            message.is_stub = True
            self._make_ready(message)
        elif answer.code == "full" and message.entry.kind == subjects.EXECUTE:
            self._note_taken(message)
            self._end(message)  # its subject is full: fallback polling finds the task
        elif answer.code == "full":
            self._postpone(message)
        else:  # the stream refuses this message, not others
            self._hold(message)
            self._retries(message).keep(message, _REFUSED_RETRY_SECONDS)

    def _postpone(self, message: OutboxMessage) -> None:
        self._hold(message)
        self._retries(message).keep_failed(message)

    def _note_taken(self, message: OutboxMessage) -> None:
        retries = self._retries(message)
        retries.note_taken(message)
        if retries:
            self._work.set()

    def _retries(self, message: OutboxMessage) -> RetryQueue:
        return self._retry_queues[message.entry.kind[:3]]

    def _hold(self, message: OutboxMessage) -> None:
        """Count a message and its followers as held until its stream takes it."""
        if not message.is_held:
            message.is_held = True
            for held in (message, *(message.followers or ())):
                self._count_held(held, 1)

    def _count_held(self, message: OutboxMessage, sign: int) -> None:
        if not message.is_replay:  # few replays are in flight at a time
            self.held += sign
            self.held_bytes += sign * len(message.entry.payload)

    def _end(self, message: OutboxMessage) -> None:
        self.pending -= 1
        self.pending_bytes -= len(message.entry.payload)
        if message.is_replay:
            self.replays -= 1
            self.replay_bytes -= len(message.entry.payload)
        if message.on_done is not None:
            message.on_done(message.entry.seq)
        followers = message.followers
        if message.is_held:
            for held in (message, *(followers or ())):
                self._count_held(held, -1)
        if followers is None:
            del self._first[message.key]
            return
        successor = followers.popleft()
        successor.followers = followers or None
        self._first[message.key] = successor
        self._make_ready(successor)
