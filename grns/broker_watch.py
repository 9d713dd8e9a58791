"""Has the broker lost what it had acknowledged? If so, what has to be replayed to it?

A stream that was made anew has another epoch; one whose tail was cut off is shorter than
what it acknowledged, or acknowledges a new message with a number it gave out before.
"""

from __future__ import annotations

import time

from grns import subjects
from grns.errors import GrnsError
from grns.store import log
from grns.store.database import Session
from grns.telemetry.emit import Emit
from grns.telemetry.facts import BrokerLost, EventsReplayed, TickFailed
from grns.transport.base import Receipt, StreamState, Transport

_LOOK_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 1.0
# Events are sent with many under way: the last one that survived may stand before some that did not.
_MARGIN_ROWS = 20_000
_REPLAY_ROWS = 500
_UNSETTLED = "replaying"


class BrokerWatch:
    """Looks at the event stream now and then, and whenever something is odd."""

    def __init__(
        self,
        session: Session,
        transport: Transport,
        *,
        epoch: str | None,
        last_seq: int,
        replay_seconds: float,
        emit: Emit,
    ) -> None:
        self._session = session
        self._transport = transport
        self._epoch = epoch
        self.last_seq = last_seq
        self._replay_seconds = replay_seconds
        self._emit = emit
        self._look_at = 0.0
        self._looked_at = 0.0
        self._went_back = False
        self._replay: log.Span | None = None
        self._replayed = 0

    @property
    def epoch(self) -> str | None:
        """What to persist: while a replay is under way, another leader must begin it anew."""
        return self._epoch if self._replay is None else _UNSETTLED

    @property
    def is_replaying(self) -> bool:
        """Say whether events are being replayed."""
        return self._replay is not None

    def note(self, receipt: Receipt) -> None:
        """Look at one acknowledgement."""
        if receipt.stream != subjects.EVT_STREAM:
            return
        if receipt.seq <= self.last_seq and not receipt.duplicate:
            self._went_back = True
            self.suspect()
        if receipt.seq > self.last_seq:
            self.last_seq = receipt.seq

    def suspect(self) -> None:
        """Look again soon."""
        self._look_at = min(self._look_at, self._looked_at + _LOOK_AGAIN_SECONDS)

    async def look(self, high: int) -> None:
        """See whether the streams are there and hold what they acknowledged, if it is time to."""
        if time.monotonic() < self._look_at:
            return
        self._looked_at = time.monotonic()
        self._look_at = self._looked_at + _LOOK_AGAIN_SECONDS
        acknowledged, went_back = self.last_seq, self._went_back
        try:
            await self._transport.provision()
            state = await self._transport.state(subjects.EVT_STREAM)
            since = await self._lost_since(state, acknowledged, went_back, high)
        except GrnsError as error:
            self._emit(TickFailed("broker_watch", str(error)))
            return
        self._look_at = self._looked_at + _LOOK_SECONDS
        self._epoch = state.epoch
        if since is not None:
            self._went_back = False
            self.last_seq = state.last_seq
            self._replay = (since, high)
            self._replayed = 0

    async def next_replay(self, *, is_settled: bool) -> list[log.Entry]:
        """Return the next events to replay; ends the replay once all of it is `is_settled`."""
        if self._replay is None:
            return []
        after, up_to = self._replay
        entries = await log.read_events(self._session, after, up_to, _REPLAY_ROWS) if after < up_to else []
        self._replayed += len(entries)
        if entries:
            self._replay = (entries[-1].seq, up_to)
        elif is_settled:
            self._emit(EventsReplayed(self._replayed))
            self._replay = None
        else:
            self._replay = (up_to, up_to)
        return entries

    async def _lost_since(
        self, state: StreamState, acknowledged: int, went_back: bool, high: int
    ) -> int | None:
        """Return the number of the log from which on events may be lost, None where none are."""
        if self._epoch is None:
            return None
        if state.epoch == self._epoch and state.last_seq >= acknowledged and not went_back:
            return None
        since = max(0, await log.first_younger_than(self._session, self._replay_seconds, high) - 1)
        reason = "the stream was made anew"
        if state.epoch == self._epoch:
            reason = "the stream lost its end"
            last = None if went_back else await self._transport.last_message(subjects.EVT_STREAM)
            said = last.headers.get("Grns-Seq", "") if last is not None else ""
            if said.isdigit():
                since = max(since, int(said) - _MARGIN_ROWS)
        self._emit(BrokerLost(reason, since))
        return since
