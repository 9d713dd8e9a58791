"""What is on its way to the broker: in order per task, never two unacknowledged of one task in one stream."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from grns import envelope, subjects
from grns.errors import BrokerRefused, GrnsError
from grns.store.log import Entry
from grns.strict_json import dumps
from grns.telemetry import failpoint
from grns.telemetry.emit import Emit
from grns.telemetry.facts.relay import MessageRefused, MessagesPublished
from grns.transport.base import HeaderLines, Message, Receipt, Transport, one_line

_RETRY_SECONDS = 0.25
_REFUSED_RETRY_SECONDS = 5.0


class Parcel:
    """One row of the log on its way. A replayed one is published again for those who lost it."""

    __slots__ = ("entry", "followers", "is_replay", "is_stub", "is_waiting", "key", "on_receipt")

    def __init__(
        self, entry: Entry, *, is_replay: bool = False, on_receipt: Callable[[Receipt], None] | None = None
    ) -> None:
        self.entry = entry
        self.on_receipt = on_receipt
        self.is_replay = is_replay
        self.is_stub = False
        # What has to stay in order: one task in one stream.
        self.key = f"{entry.kind[:3]} {entry.task_id or entry.message_id}"
        self.followers: deque[Parcel] | None = None
        self.is_waiting = False  # among the replays that are ready


@dataclass(order=True, slots=True)
class _Later:
    at: float
    seq: int
    parcel: Parcel = field(compare=False)


class Outbound:
    """Sends parcels through the transport's window.

    `on_done` hears of each live row that the broker has (or that counts as had);
    `may_send` is asked before each send. A refusal never occupies the window.
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
    ) -> None:
        self._transport = transport
        self._on_done = on_done
        self._on_receipt = on_receipt
        self._on_trouble = on_trouble
        self._may_send = may_send
        self._max_bytes = max_bytes
        self._emit = emit
        self._first: dict[str, Parcel] = {}
        self._ready: deque[Parcel] = deque()
        self._ready_replays: deque[Parcel] = deque()
        self._later: list[_Later] = []
        self._is_closed = False
        self._work = asyncio.Event()
        self._replays = 0
        self._published: Counter[str] = Counter()
        self._failure: Exception | None = None
        self.pending = 0
        self.pending_bytes = 0

    def tell(self) -> None:
        """Tell how much has been published since this was last asked for."""
        counted, self._published = self._published, Counter()
        for kind, messages in counted.items():
            self._emit(MessagesPublished(kind, messages))

    @property
    def replays(self) -> int:
        """How many replayed events have not been acknowledged."""
        return self._replays

    @property
    def oldest_age_seconds(self) -> float:
        """The age of some oldest row that waits, 0 where none does."""
        first = next(iter(self._first.values()), None)
        if first is None:
            return 0.0
        return max(0.0, (datetime.now(UTC) - first.entry.created_at).total_seconds())

    def add(self, parcel: Parcel) -> None:
        """Queue a parcel behind those of the same task."""
        self.pending += 1
        self.pending_bytes += len(parcel.entry.payload)
        self._replays += parcel.is_replay
        first = self._first.setdefault(parcel.key, parcel)
        if first is parcel:
            self._make_ready(parcel)
            return
        if first.followers is None:
            first.followers = deque()
        first.followers.append(parcel)
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
        post, settle = self._transport.post, self._settle
        for sent in range(room):
            parcel = self._next()
            if parcel is None:
                return sent
            post(_message(parcel, max_bytes), partial(settle, parcel))
            failpoint.reach("relay.published")
        return room

    def _next(self) -> Parcel | None:
        if not self._may_send():
            return None
        if self._ready:
            return self._ready.popleft()
        while self._ready_replays:
            parcel = self._ready_replays.popleft()
            if parcel.is_waiting:  # else it has gone with the live rows
                parcel.is_waiting = False
                return parcel
        return None

    async def _idle(self) -> None:
        self._work.clear()
        try:
            async with asyncio.timeout(_RETRY_SECONDS / 2):
                await self._work.wait()
        except TimeoutError:
            return

    def _make_ready(self, parcel: Parcel) -> None:
        parcel.is_waiting = parcel.is_replay and all(one.is_replay for one in parcel.followers or ())
        (self._ready_replays if parcel.is_waiting else self._ready).append(parcel)
        self._work.set()

    def _revive(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0].at <= now:
            self._make_ready(heapq.heappop(self._later).parcel)

    def _settle(self, parcel: Parcel, answer: Receipt | GrnsError) -> None:
        if self._is_closed:
            return
        try:
            self._take_in(parcel, answer)
        except Exception as error:  # else nobody would ever be done with it, and all of its task behind it
            self._failure = error
            self._work.set()

    def _take_in(self, parcel: Parcel, answer: Receipt | GrnsError) -> None:
        if isinstance(answer, Receipt):
            failpoint.reach("relay.acknowledged")
            self._published[parcel.entry.kind] += 1
            self._on_receipt(answer)
            if parcel.on_receipt is not None:
                parcel.on_receipt(answer)
            self._end(parcel)
        elif isinstance(answer, BrokerRefused):
            self._refused(parcel, answer)
        else:
            self._on_trouble()
            self._postpone(parcel, _RETRY_SECONDS)

    def _refused(self, parcel: Parcel, answer: BrokerRefused) -> None:
        self._emit(MessageRefused(parcel.entry.kind, parcel.entry.seq, answer.code))
        if answer.code == "too_large" and not parcel.is_stub:
            parcel.is_stub = True
            self._make_ready(parcel)
        elif answer.code == "full" and parcel.entry.kind == subjects.EXECUTE:
            self._end(parcel)  # the lane is full: the task is queued, and the workers' poll finds it
        else:
            self._postpone(parcel, _REFUSED_RETRY_SECONDS)

    def _postpone(self, parcel: Parcel, seconds: float) -> None:
        heapq.heappush(self._later, _Later(time.monotonic() + seconds, parcel.entry.seq, parcel))

    def _end(self, parcel: Parcel) -> None:
        self.pending -= 1
        self.pending_bytes -= len(parcel.entry.payload)
        if parcel.is_replay:
            self._replays -= 1
        else:
            self._on_done(parcel.entry.seq)
        followers = parcel.followers
        if followers is None:
            del self._first[parcel.key]
            return
        heir = followers.popleft()
        heir.followers = followers or None
        self._first[parcel.key] = heir
        self._make_ready(heir)


def _message(parcel: Parcel, max_bytes: int) -> Message:
    entry = parcel.entry
    body = _body(entry)
    if parcel.is_stub or len(body) > max_bytes:
        parcel.is_stub = True
        body = _body(entry._replace(payload=_stub(entry)))
    subject = subjects.message(entry.kind, entry.workspace, entry.route)
    return Message(subject, body, entry.message_id, _headers(entry))


def _headers(entry: Entry) -> HeaderLines:
    seq, version, message_id, workspace, task_id, _, _, trace_id, _, _, _ = entry
    task = "" if task_id is None else f"Grns-Task: {one_line(task_id)}\r\n"
    return (
        f"traceparent: {envelope.traceparent(trace_id, message_id)}\r\n"
        f"Grns-Workspace: {one_line(workspace)}\r\nGrns-Version: {version}\r\nGrns-Seq: {seq}\r\n{task}"
    )


def _body(entry: Entry) -> bytes:
    _, _, message_id, _, _, kind, _, trace_id, causation_id, payload, created_at = entry
    return envelope.assemble(
        message_id=message_id,
        trace_id=trace_id,
        causation_id=causation_id,
        kind=kind,
        emitted_at=created_at,
        payload=payload,
    )


def _stub(entry: Entry) -> str:
    return dumps(
        {
            "truncated": True,
            "ref": f"db://events/{entry.seq}",
            "task_id": entry.task_id,
            "message_id": entry.message_id,
        }
    )
