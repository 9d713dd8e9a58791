"""Has the broker lost what it had acknowledged? If so, what has to be replayed to it?

A stream that was made anew has another epoch; one whose tail was cut off is shorter than
what it acknowledged, or acknowledges a new message with a number it gave out before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grns.errors import DriftError, GrnsError
from grns.model import subjects
from grns.nats.interface import Receipt, StreamState, Transport, whole_number
from grns.outbox import log
from grns.outbox.log_range import MARGIN_ROWS, RangeReader
from grns.outbox.loss_replay import LossReplay
from grns.outbox.message import OutboxMessage
from grns.postgres.database import Session
from grns.telemetry.service_signals import BrokerLost, EventsReplayed, TickFailed
from grns.telemetry.signal import Emit

_LOOK_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 1.0
_SUSPECT = "to be looked at"
# Of commands nothing has to be replayed: the workers' poll finds their tasks.
_PATTERNS = {subjects.EVT_STREAM: r"^evt\.", subjects.DLQ_STREAM: r"^dlq\."}


class StreamPosition:
    """What one stream has acknowledged: where it was then, and which stream it was."""

    def __init__(self, stream: str, place: log.LastAcknowledged) -> None:
        self.stream = stream
        self.epoch = place.epoch
        self.last_seq = place.last_seq
        self.lost = place.lost  # what another leader has not sent again
        self.went_back = False

    def note(self, receipt: Receipt) -> bool:
        """Take in one acknowledgement; True where its number was given out before."""
        is_odd = receipt.seq <= self.last_seq and not receipt.duplicate
        self.went_back = self.went_back or is_odd
        if receipt.seq > self.last_seq:
            self.last_seq = receipt.seq
        return is_odd

    def loss(self, state: StreamState, acknowledged: int, went_back: bool) -> str | None:
        """Say what has become of what was acknowledged; None where nothing has."""
        if self.epoch is None:
            return None
        if state.epoch != self.epoch:
            return "the stream was made anew"
        if state.last_seq < acknowledged or went_back:
            return "the stream lost its end"
        return None


@dataclass(frozen=True)
class StreamFinding:
    """What a stream has answered: where it is, and what it has lost, if anything.

    `survived` is the number of the log that its last message says, where only its end is gone, and
    the message has certainly not come after that. Up to `low` all of the log was done.
    """

    position: StreamPosition
    state: StreamState
    reason: str | None
    survived: int | None
    low: int


class StreamLossDetector:
    """Looks at the streams now and then, and whenever something is odd."""

    def __init__(
        self,
        session: Session,
        transport: Transport,
        *,
        places: Mapping[str, log.LastAcknowledged],
        replay_seconds: float,
        emit: Emit,
    ) -> None:
        self._session = session
        self._transport = transport
        self._memories = {stream: StreamPosition(stream, places[stream]) for stream in _PATTERNS}
        self._replay_seconds = replay_seconds
        self._emit = emit
        self._look_at = 0.0
        self._looked_at = 0.0
        self._asking: asyncio.Task[list[StreamFinding]] | None = None
        self._resend: LossReplay | None = None
        self._pages = RangeReader(self._read)

    @property
    def places(self) -> dict[str, log.LastAcknowledged]:
        """What to persist: a loss that was not looked at yet, or not made good yet, is the next leader's."""
        return {
            stream: log.LastAcknowledged(
                _SUSPECT if position.went_back else position.epoch, position.last_seq, self._lost(position)
            )
            for stream, position in self._memories.items()
        }

    def _lost(self, position: StreamPosition) -> log.LostRange | None:
        resend = self._resend
        if resend is not None and _PATTERNS[position.stream] in resend.patterns:
            return resend.lost
        return position.lost

    @property
    def is_replaying(self) -> bool:
        """Say whether something is being replayed."""
        return self._resend is not None

    def note(self, receipt: Receipt) -> None:
        """Look at one acknowledgement."""
        position = self._memories.get(receipt.stream)
        if position is not None and position.note(receipt):
            self.suspect()

    def suspect(self) -> None:
        """Look again soon."""
        self._look_at = min(self._look_at, self._looked_at + _LOOK_AGAIN_SECONDS)

    async def look(self, low: int, high: int) -> None:
        """See whether the streams are there and hold what they acknowledged, if it is time to.

        Up to `low` all of the log is done, so nothing of that is sent as new any more; beyond `high`
        nothing has been read.
        The broker is asked beside the caller, whose lead does not wait for it: a later call takes it in.
        """
        for position in self._memories.values():
            if position.lost is not None:
                self._send_again(position, position.lost, high)
        if self._asking is None:
            if time.monotonic() >= self._look_at:
                self._asking = asyncio.create_task(self._ask(low))
        elif self._asking.done():
            asked, self._asking = self._asking, None
            for finding in asked.result():
                await self._take_in(finding, high)

    async def end(self) -> None:
        """Look no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, low: int) -> list[StreamFinding]:
        """Make the streams that are gone, and ask each where it is, while messages go on being sent."""
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + _LOOK_SECONDS
        known = {
            position.stream: (position.last_seq, position.went_back) for position in self._memories.values()
        }
        found: list[StreamFinding] = []
        try:
            await self._transport.provision()
        except GrnsError as error:  # what is wrong with one stream says nothing of what the others have lost
            self._fail(error)
        for position in self._memories.values():
            if not self._transport.is_connected:
                break
            try:
                found.append(await self._find(position, *known[position.stream], low))
            except GrnsError as error:
                self._fail(error)
        return found

    def _fail(self, error: GrnsError) -> None:
        """Tell what could not be looked at; look again soon where that may pass by itself."""
        self._emit(TickFailed("broker_watch", str(error)))
        if not isinstance(error, DriftError):
            self._look_at = self._looked_at + _LOOK_AGAIN_SECONDS

    async def next_replay(self, *, is_settled: bool) -> Sequence[OutboxMessage]:
        """Return what to replay next; ends the replay once all of it is `is_settled`."""
        if (resend := self._resend) is None:
            return []
        if resend.is_read:
            if is_settled:
                self._emit(EventsReplayed(resend.events))
                self._resend = None
            return []
        after, entries = await self._pages.next(resend.after, resend.up_to)
        on_receipt = resend.take(after, entries)
        return [OutboxMessage(entry, is_replay=True, on_receipt=on_receipt) for entry in entries]

    async def _read(self, after: int, up_to: int, limit: int, most_bytes: int) -> log.LogRange:
        patterns = sorted(self._resend.patterns) if self._resend is not None else []
        return await log.read_range(self._session, after, up_to, limit, most_bytes, patterns)

    async def _find(
        self, position: StreamPosition, acknowledged: int, went_back: bool, low: int
    ) -> StreamFinding:
        """Compare one stream with what it had acknowledged when the look began."""
        state = await self._transport.state(position.stream)
        reason = position.loss(state, acknowledged, went_back)
        is_cut = reason is not None and state.epoch == position.epoch and not went_back
        last = await self._transport.last_message(position.stream) if is_cut else None
        survived = whole_number(last.headers.get("Grns-Seq", "")) if last is not None else None
        if survived is not None and survived > low:
            survived = None  # it may have been stored just now, behind what is gone
        return StreamFinding(position, state, reason, survived, low)

    async def _take_in(self, finding: StreamFinding, high: int) -> None:
        """Have replayed what a stream has lost, and remember where it is."""
        position, state, reason = finding.position, finding.state, finding.reason
        if reason is not None:
            since = await self._lost_since(finding, high)
            self._emit(BrokerLost(reason, since))
            self._send_again(position, log.LostRange(since, since), high)
            position.went_back = False
            position.last_seq = state.last_seq
        position.epoch = state.epoch

    async def _lost_since(self, finding: StreamFinding, high: int) -> int:
        """Return the number of the log from which on messages may be lost."""
        # So many seconds before what was done last, and not ago: the broker may have been away for longer.
        first = await log.first_near(self._session, finding.low, self._replay_seconds, high)
        since = max(0, first - 1 - MARGIN_ROWS)
        if finding.survived is not None:
            since = max(since, min(finding.survived, high) - MARGIN_ROWS)
        lost = self._lost(finding.position)
        return since if lost is None else min(since, lost.since)

    def _send_again(self, position: StreamPosition, lost: log.LostRange, high: int) -> None:
        """Send again what one stream has lost, together with what is being sent again already."""
        pattern, position.lost = _PATTERNS[position.stream], None
        if self._resend is None:
            self._resend = LossReplay(lost, high, frozenset({pattern}))
        else:
            self._resend.extend(lost, high, pattern)
