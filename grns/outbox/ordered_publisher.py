"""What is on its way to the broker: in order per task, never two unacknowledged of one task in one stream."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from grns.errors import BrokerRefused, GrnsError
from grns.model import envelope, subjects
from grns.model.json import dumps
from grns.nats.interface import HeaderLines, Message, Receipt, Transport, one_line
from grns.outbox.log import LogEntry
from grns.outbox.message import OutboxMessage
from grns.outbox.retry_queue import RetryQueue
from grns.telemetry import failpoint
from grns.telemetry.emit import Emit
from grns.telemetry.facts.relay import MessageRefused, MessagesPublished
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
        self._backlogs: defaultdict[str, RetryQueue] = defaultdict(RetryQueue)  # by stream
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

    def add(self, parcel: OutboxMessage) -> None:
        """Queue a parcel behind those of the same task."""
        self.pending += 1
        self.pending_bytes += len(parcel.entry.payload)
        if parcel.is_replay:
            self.replays += 1
            self.replay_bytes += len(parcel.entry.payload)
        first = self._first.setdefault(parcel.key, parcel)
        if first is parcel:
            self._make_ready(parcel)
            return
        if first.followers is None:
            first.followers = deque()
        first.followers.append(parcel)
        if first.is_held:
            self._count_held(parcel, 1)
        if first.is_waiting and not parcel.is_replay:
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
            parcel = self._next()
            if parcel is None:
                return sent
            if is_shown:
                parcel.sent_ns = time.time_ns()
            post(_message(parcel, max_bytes), partial(settle, parcel))
            failpoint.reach("relay.published")
        return room

    def _next(self) -> OutboxMessage | None:
        if not self._may_send():
            return None
        while self._ready:
            if self._may_try(parcel := self._ready.popleft()):
                return parcel
        while self._ready_replays:
            parcel = self._ready_replays.popleft()
            if parcel.is_waiting:  # else it has gone with the live rows
                parcel.is_waiting = False
                if self._may_try(parcel):
                    return parcel
        return None

    def _may_try(self, parcel: OutboxMessage) -> bool:
        """Say whether to send it; what its stream would not take is kept for later, and costs nothing."""
        backlog = self._backlog(parcel)
        if parcel.is_trial or not backlog.is_blocked:
            return True
        self._hold(parcel)
        backlog.keep(parcel)
        return False

    async def _idle(self) -> None:
        self._work.clear()
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._work.wait()
        except TimeoutError:
            return

    def _make_ready(self, parcel: OutboxMessage) -> None:
        parcel.is_waiting = parcel.is_replay and all(one.is_replay for one in parcel.followers or ())
        (self._ready_replays if parcel.is_waiting else self._ready).append(parcel)
        self._work.set()

    def _revive(self) -> None:
        """Try again what it is time for: before what was never tried, so that it is answered soon."""
        for backlog in self._backlogs.values():
            while (parcel := backlog.due()) is not None:
                self._ready.appendleft(parcel)

    def _settle(self, parcel: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if self._is_closed:
            return
        try:
            self._take_in(parcel, answer)
        except Exception as error:  # else nobody would ever be done with it, and all of its task behind it
            self._failure = error
            self._work.set()

    def _take_in(self, parcel: OutboxMessage, answer: Receipt | GrnsError) -> None:
        if isinstance(answer, Receipt):
            failpoint.reach("relay.acknowledged")
            self._note_taken(parcel)
            self._published[parcel.entry.kind] += 1
            if self._spans.is_on and not parcel.is_replay:
                self._show(parcel)
            self._on_receipt(answer)
            if parcel.on_receipt is not None:
                parcel.on_receipt(answer)
            self._end(parcel)
        elif isinstance(answer, BrokerRefused):
            self._refused(parcel, answer)
        else:
            self._on_trouble()
            self._postpone(parcel)

    def _show(self, parcel: OutboxMessage) -> None:
        entry = parcel.entry
        self._spans.published(
            kind=entry.kind,
            message_id=entry.message_id,
            trace_id=entry.trace_id,
            causation_id=entry.causation_id,
            task_id=entry.task_id,
            began_ns=parcel.sent_ns,
        )

    def _refused(self, parcel: OutboxMessage, answer: BrokerRefused) -> None:
        self._emit(MessageRefused(parcel.entry.kind, parcel.entry.seq, answer.code))
        if answer.code == "too_large" and not parcel.is_stub:
            parcel.is_stub = True
            self._make_ready(parcel)
        elif answer.code == "full" and parcel.entry.kind == subjects.EXECUTE:
            self._note_taken(parcel)
            self._end(parcel)  # the lane is full: the task is queued, and the workers' poll finds it
        elif answer.code == "full":
            self._postpone(parcel)
        else:  # whatever else the stream takes, this it does not
            self._hold(parcel)
            self._backlog(parcel).keep(parcel, _REFUSED_RETRY_SECONDS)

    def _postpone(self, parcel: OutboxMessage) -> None:
        self._hold(parcel)
        self._backlog(parcel).keep_failed(parcel)

    def _note_taken(self, parcel: OutboxMessage) -> None:
        backlog = self._backlog(parcel)
        backlog.note_taken(parcel)
        if backlog:
            self._work.set()

    def _backlog(self, parcel: OutboxMessage) -> RetryQueue:
        return self._backlogs[parcel.entry.kind[:3]]

    def _hold(self, parcel: OutboxMessage) -> None:
        """Count it, and what waits behind it, as held, until its stream takes it."""
        if not parcel.is_held:
            parcel.is_held = True
            for one in (parcel, *(parcel.followers or ())):
                self._count_held(one, 1)

    def _count_held(self, parcel: OutboxMessage, sign: int) -> None:
        if not parcel.is_replay:  # those are few at a time, by themselves
            self.held += sign
            self.held_bytes += sign * len(parcel.entry.payload)

    def _end(self, parcel: OutboxMessage) -> None:
        self.pending -= 1
        self.pending_bytes -= len(parcel.entry.payload)
        if parcel.is_replay:
            self.replays -= 1
            self.replay_bytes -= len(parcel.entry.payload)
        else:
            self._on_done(parcel.entry.seq)
        followers = parcel.followers
        if parcel.is_held:
            for one in (parcel, *(followers or ())):
                self._count_held(one, -1)
        if followers is None:
            del self._first[parcel.key]
            return
        heir = followers.popleft()
        heir.followers = followers or None
        self._first[parcel.key] = heir
        self._make_ready(heir)


def _message(parcel: OutboxMessage, max_bytes: int) -> Message:
    entry = parcel.entry
    body = _body(entry)
    if parcel.is_stub or len(body) > max_bytes:
        parcel.is_stub = True
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
