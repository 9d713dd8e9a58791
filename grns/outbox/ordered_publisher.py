"""What is on its way to the broker: in order per task, never two unacknowledged of one task in one stream."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from grns.errors import BrokerRefusedError, GrnsError
from grns.model import envelope, subjects
from grns.model.json import dumps
from grns.nats.interface import HeaderLines, Message, Receipt, Transport, one_line
from grns.outbox.log import LogEntry
from grns.outbox.message import OutboxMessage
from grns.outbox.retry_queue import RetryQueue
from grns.telemetry import failpoint
from grns.telemetry.service_signals import MessageRefused, MessagesPublished
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans

_IDLE_SECONDS = 0.125
_REFUSED_RETRY_SECONDS = 5.0
# What streams do not take waits here, and keeps nothing else from being read, up to so much of it.
_MOST_HELD = 20_000
_MOST_HELD_BYTES = 64 * 1024 * 1024


class OrderedPublisher:
    """Sends parcels through the transport's window.

    `on_done` hears of each live row that the broker has (or that counts as had);
    `may_send` is asked before each send. A refusal never occupies the window. What a stream does
    not take is held, with all that waits behind it; it does not count among what is under way.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        on_done: Callable[[int], None],
        on_receipt: Callable[[Receipt], None],
        on_trouble: Callable[[], None],
        may_send: Callable[[], bool],
        max_bytes: int,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._transport = transport
        self._on_done = on_done
        self._on_receipt = on_receipt
        self._on_trouble = on_trouble
        self._may_send = may_send
        self._max_bytes = max_bytes
        self._emit = emit
        self._spans = spans
        self._first: dict[str, OutboxMessage] = {}
        self._ready: deque[OutboxMessage] = deque()
        self._ready_replays: deque[OutboxMessage] = deque()
        self._retry_queues: defaultdict[str, RetryQueue] = defaultdict(RetryQueue)  # by stream
        self._is_closed = False
        self._work = asyncio.Event()
        self._published: Counter[str] = Counter()
        self._failure: Exception | None = None
        self.pending = 0
        self.pending_bytes = 0
        self.replays = 0
        self.replay_bytes = 0
        self.held = 0
        self.held_bytes = 0

    def tell(self) -> None:
        """Tell how much has been published since this was last asked for."""
        counted, self._published = self._published, Counter()
        for kind, messages in counted.items():
            self._emit(MessagesPublished(kind, messages))

    @property
    def under_way(self) -> int:
        """How many live rows are on their way to streams that take what they get."""
        return self.pending - self.held - self.replays

    @property
    def under_way_bytes(self) -> int:
        """How large their payloads are together."""
        return self.pending_bytes - self.held_bytes - self.replay_bytes

    @property
    def holds_too_much(self) -> bool:
        """Say whether so much is held that there is room for nothing else."""
        return self.held >= _MOST_HELD or self.held_bytes >= _MOST_HELD_BYTES

    @property
    def oldest_age_seconds(self) -> float:
        """The age of some oldest row that waits, 0 where none does."""
        first = next(iter(self._first.values()), None)
        if first is None:
            return 0.0
        return max(0.0, (datetime.now(UTC) - first.entry.created_at).total_seconds())

    def add(self, message: OutboxMessage) -> None:
        """Queue a parcel behind those of the same task."""
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
            self._make_ready(first)  # live rows wait for it now: it goes with them

    async def run(self) -> None:
        """Send until closed, live rows before replayed ones; raise what an answer ran into."""
        while not self._is_closed:
            if self._failure is not None:
                raise self._failure
            self._revive()
            if not self._ready and not self._ready_replays:
                await self._idle()
                continue
            # However long there is no broker, or no room: whether it may send is asked after that.
            room = await self._transport.ready()
            if not self._send(room):
                await self._idle()

    def close(self) -> None:
        """Send nothing more; answers that still come are not looked at."""
        self._is_closed = True
        self._work.set()

    def _send(self, room: int) -> int:
        """Send what is ready as long as it may and there is room; return how many that were."""
        max_bytes = min(self._max_bytes, self._transport.max_message_bytes)
        post, settle, is_shown = self._transport.post, self._settle, self._spans.is_on
        for sent in range(room):
            message = self._next()
            if message is None:
                return sent
            if is_shown:
                message.sent_ns = time.time_ns()
            post(_message(message, max_bytes), partial(settle, message))
            failpoint.reach("relay.published")
        return room

    def _next(self) -> OutboxMessage | None:
        if not self._may_send():
            return None
        while self._ready:
            if self._may_try(message := self._ready.popleft()):
                return message
        while self._ready_replays:
            message = self._ready_replays.popleft()
            if message.is_waiting:  # else it has gone with the live rows
                message.is_waiting = False
                if self._may_try(message):
                    return message
        return None

    def _may_try(self, message: OutboxMessage) -> bool:
        """Say whether to send it; what its stream would not take is kept for later, and costs nothing."""
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
        message.is_waiting = message.is_replay and all(one.is_replay for one in message.followers or ())
        (self._ready_replays if message.is_waiting else self._ready).append(message)
        self._work.set()

    def _revive(self) -> None:
        """Try again what it is time for: before what was never tried, so that it is answered soon."""
        for retries in self._retry_queues.values():
            while (message := retries.due()) is not None:
                self._ready.appendleft(message)

    def _settle(self, message: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if self._is_closed:
            return
        try:
            self._take_in(message, answer)
        except Exception as error:  # else nobody would ever be done with it, and all of its task behind it
            self._failure = error
            self._work.set()

    def _take_in(self, message: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if isinstance(answer, Receipt):
            failpoint.reach("relay.acknowledged")
            self._note_taken(message)
            self._published[message.entry.kind] += 1
            if self._spans.is_on and not message.is_replay:
                self._show(message)
            self._on_receipt(answer)
            if message.on_receipt is not None:
                message.on_receipt(answer)
            self._end(message)
        elif isinstance(answer, BrokerRefusedError):
            self._refused(message, answer)
        else:
            self._on_trouble()
            self._postpone(message)

    def _show(self, message: OutboxMessage) -> None:
        entry = message.entry
        self._spans.published(
            kind=entry.kind,
            message_id=entry.message_id,
            trace_id=entry.trace_id,
            causation_id=entry.causation_id,
            task_id=entry.task_id,
            began_ns=message.sent_ns,
        )

    def _refused(self, message: OutboxMessage, answer: BrokerRefusedError) -> None:
        self._emit(MessageRefused(message.entry.kind, message.entry.seq, answer.code))
        if answer.code == "too_large" and not message.is_stub:
            message.is_stub = True
            self._make_ready(message)
        elif answer.code == "full" and message.entry.kind == subjects.EXECUTE:
            self._note_taken(message)
            self._end(message)  # the lane is full: the task is queued, and the workers' poll finds it
        elif answer.code == "full":
            self._postpone(message)
        else:  # whatever else the stream takes, this it does not
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
        """Count it, and what waits behind it, as held, until its stream takes it."""
        if not message.is_held:
            message.is_held = True
            for one in (message, *(message.followers or ())):
                self._count_held(one, 1)

    def _count_held(self, message: OutboxMessage, sign: int) -> None:
        if not message.is_replay:  # those are few at a time, by themselves
            self.held += sign
            self.held_bytes += sign * len(message.entry.payload)

    def _end(self, message: OutboxMessage) -> None:
        self.pending -= 1
        self.pending_bytes -= len(message.entry.payload)
        if message.is_replay:
            self.replays -= 1
            self.replay_bytes -= len(message.entry.payload)
        else:
            self._on_done(message.entry.seq)
        followers = message.followers
        if message.is_held:
            for one in (message, *(followers or ())):
                self._count_held(one, -1)
        if followers is None:
            del self._first[message.key]
            return
        successor = followers.popleft()
        successor.followers = followers or None
        self._first[message.key] = successor
        self._make_ready(successor)


def _message(message: OutboxMessage, max_bytes: int) -> Message:
    entry = message.entry
    body = _body(entry)
    if message.is_stub or len(body) > max_bytes:
        message.is_stub = True
        body = _body(entry._replace(payload=_stub(entry)))
    subject = subjects.message(entry.kind, entry.workspace, entry.route)
    return Message(subject, body, entry.message_id, _headers(entry))


def _headers(entry: LogEntry) -> HeaderLines:
    seq, version, message_id, workspace, task_id, _, _, trace_id, _, _, _ = entry
    task = "" if task_id is None else f"Grns-Task: {one_line(task_id)}\r\n"
    return (
        f"traceparent: {envelope.traceparent(trace_id, message_id)}\r\n"
        f"Grns-Workspace: {one_line(workspace)}\r\nGrns-Version: {version}\r\nGrns-Seq: {seq}\r\n{task}"
    )


def _body(entry: LogEntry) -> bytes:
    _, _, message_id, _, _, kind, _, trace_id, causation_id, payload, created_at = entry
    return envelope.assemble(
        message_id=message_id,
        trace_id=trace_id,
        causation_id=causation_id,
        kind=kind,
        emitted_at=created_at,
        payload=payload,
    )


def _stub(entry: LogEntry) -> str:
    return dumps(
        {
            "truncated": True,
            "ref": f"db://events/{entry.seq}",
            "task_id": entry.task_id,
            "message_id": entry.message_id,
        }
    )
