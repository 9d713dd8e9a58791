"""The webhook sender: tells webhooks what the log says, each of what it wants to hear, until it is taken.

Each event becomes one row for each webhook that is told of it, in the statement that moves the cursor; that
row is taken, attempted, and ended or put off. Who is killed, frozen or cut off in between has put it off till
the lease is over, and then anybody attempts it again: each event is sent at least once, with the same id each
time. Any number of senders may run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import uuid4

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database
from grns.runtime.adaptive_batch import AdaptiveBatchSize
from grns.runtime.service import PeriodicService
from grns.settings.groups import WebhookSettings
from grns.telemetry.service_signals import (
    TickFailed,
    WebhookDelivered,
    WebhookDeliveriesMade,
    WebhookDisabled,
    WebhookNotDelivered,
)
from grns.webhooks import deliveries as delivery
from grns.webhooks import model as webhook
from grns.webhooks.deliveries import Claimed, DeliveryEvent, Ending
from grns.webhooks.http import HttpSender, SendResult
from grns.webhooks.model import Secret

_NAME = "webhook_sender"
_MOST_NUMBERS = 2000
_MOST_OF_ONE = 10
_MOST_OF_FAILING = 1
_LOOK_FOR_FLOODS_SECONDS = 10.0
# Beyond the longest attempt: looking back, writing what came of it, and writing it again.
_LEASE_MORE_SECONDS = 45.0
_NOTE_TIMES = 3
_NOTE_PAUSE_SECONDS = 1.0
_GONE = 410
# What ends a delivery, and is nothing that its webhook has done.
_OUR_OWN = ("event_gone", "given_up")
_WITH_PATIENCE = (429, 503)


@dataclass(slots=True, kw_only=True, eq=False)
class WebhookSender(PeriodicService):
    """Sends deliveries; any number of senders may run."""

    database: Database
    http: HttpSender
    guard: UrlPolicy
    settings: WebhookSettings
    name: str = _NAME
    tick_seconds: float = 0.5
    _batch_size: AdaptiveBatchSize = field(
        default_factory=lambda: AdaptiveBatchSize(_MOST_NUMBERS), init=False
    )
    _make_at: float = field(default=0.0, init=False)
    _floods_at: float = field(default=0.0, init=False)
    _under_way: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _busy: Counter[str] = field(default_factory=Counter, init=False)  # by webhook
    _failing: int = field(default=0, init=False)
    _is_more_due: bool = field(default=False, init=False)
    _bug: BaseException | None = field(default=None, init=False)

    async def end(self) -> None:
        """Let what is under way come to its end."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def tick(self) -> float:
        """Make deliveries of new events, and begin with those that are due."""
        if self._bug is not None:
            raise self._bug
        has_more = await self._make() if time.monotonic() >= self._make_at else False
        await self._start(is_failing=True)
        await self._start(is_failing=False)
        await self._disable_flooded()
        if has_more:
            return 0.0
        return min(self.tick_seconds, max(0.01, self._make_at - time.monotonic()))

    # ------------------------------------------------------------ the log

    async def _make(self) -> bool:
        """Look through the next stretch of the log; True where it goes on."""
        try:
            made = await delivery.make(self.database, self._batch_size.rows)
        except (InvalidInputError, ContendedError, OutcomeUnknownError):
            self._batch_size.shorten()
            raise
        self._batch_size.lengthen()
        if made is None:
            self._make_at = time.monotonic() + self.tick_seconds
            return False
        behind = made.settled - made.low
        self.emit(WebhookDeliveriesMade(made.deliveries, made.low, behind, made.age_seconds))
        self._make_at = 0.0 if behind else time.monotonic() + self.tick_seconds
        return behind > 0

    # ------------------------------------------------------------ attempts

    async def _start(self, *, is_failing: bool) -> None:
        """Take what is due, as far as there is room, and begin with it."""
        window = self.settings.webhook_window
        room = window - len(self._under_way)
        of_one = _MOST_OF_FAILING if is_failing else _MOST_OF_ONE
        if is_failing:
            # Webhooks that fail, slowly perhaps, take no room from those that do not.
            room = min(room, max(1, window // 4) - self._failing)
        if room <= 0:
            return
        busy = Counter(self._busy)
        taken = await delivery.claim(
            self.database,
            uuid4(),
            is_failing=is_failing,
            of_one=of_one,
            limit=room,
            lease_seconds=self.settings.webhook_timeout_seconds + _LEASE_MORE_SECONDS,
            busy=busy,
        )
        taken_at = time.monotonic()
        for one in taken:
            self._begin(one, taken_at, is_failing=is_failing)
        if not is_failing:
            # Compared with what was asked for: attempts may have ended while the statement ran.
            counts = Counter(one.webhook_id for one in taken)
            self._is_more_due = len(taken) >= room or any(
                count >= of_one - busy[webhook_id] for webhook_id, count in counts.items()
            )

    def _begin(self, claimed: Claimed, taken_at: float, *, is_failing: bool) -> None:
        self._busy[claimed.webhook_id] += 1
        self._failing += is_failing
        attempt = asyncio.create_task(self._attempt(claimed, taken_at))
        self._under_way.add(attempt)

        def end(ended: asyncio.Task[None]) -> None:
            self._under_way.discard(ended)
            self._failing -= is_failing
            self._busy[claimed.webhook_id] -= 1
            if not self._busy[claimed.webhook_id]:
                del self._busy[claimed.webhook_id]
            if not ended.cancelled() and (bug := ended.exception()) is not None:
                self._bug = bug
                self.wake()
            self._ask_for_more(claimed.webhook_id)

        attempt.add_done_callback(end)

    def _ask_for_more(self, webhook_id: str) -> None:
        """Look for more at once where there was more, and enough has ended to be worth a statement."""
        is_room = (
            self._busy[webhook_id] * 2 <= _MOST_OF_ONE
            or len(self._under_way) * 2 <= self.settings.webhook_window
        )
        if self._is_more_due and is_room:
            self._is_more_due = False
            self.wake()

    async def _attempt(self, claimed: Claimed, taken_at: float) -> None:
        """Send one delivery once, and note what came of it."""
        began_at = time.monotonic()
        posted = await self._send(claimed, taken_at)
        seconds = time.monotonic() - began_at
        ending = self._ending(claimed, posted, seconds)
        is_disabled = await self._note(claimed, ending)
        if is_disabled is None:
            return  # somebody else has it by now, or it could not be noted: then it is sent again
        self._tell(claimed, posted, ending, seconds)
        if is_disabled:
            self.emit(WebhookDisabled(claimed.webhook_id, "gone" if ending.is_unwanted else "failing"))

    async def _send(self, claimed: Claimed, taken_at: float) -> SendResult:
        event = claimed.event
        if event is None:
            return SendResult(error="event_gone", detail="the log does not have it any more")
        if claimed.attempt > self.settings.webhook_attempts:
            return SendResult(error="given_up", detail="whoever attempted it last never came back")
        try:
            to = self.guard.destination(claimed.url)
        except InvalidInputError as error:  # what may be named has changed since it was
            return SendResult(error=error.code, detail=str(error))
        body = _document(claimed, event)
        timestamp = int(claimed.now_seconds + time.monotonic() - taken_at)
        headers = webhook.sign(map(Secret, claimed.secrets), claimed.message_id, timestamp, body)
        return await self.http.post(to, headers, body)

    def _ending(self, claimed: Claimed, posted: SendResult, seconds: float) -> Ending:
        """Decide what becomes of a delivery."""
        took = round(1000 * seconds)
        if posted.is_success:
            return Ending("delivered", status_code=posted.status, duration_ms=took)
        is_gone = posted.status == _GONE
        is_lost = posted.error in _OUR_OWN
        if is_gone or is_lost or claimed.attempt >= self.settings.webhook_attempts:
            return Ending(
                "failed",
                status_code=posted.status,
                error=posted.error,
                duration_ms=took,
                is_telling=not is_lost,
                is_unwanted=is_gone,
            )
        asked = posted.retry_after_seconds if posted.status in _WITH_PATIENCE else None
        delay = webhook.delay_seconds(claimed.attempt, random.random(), asked_seconds=asked)
        return Ending("pending", delay, posted.status, posted.error, took)

    async def _note(self, claimed: Claimed, ending: Ending) -> bool | None:
        """Write what came of an attempt; what cannot be written is due again with the end of its lease."""
        for left in reversed(range(_NOTE_TIMES)):
            try:
                return await delivery.finish(
                    self.database, claimed, ending, failing_seconds=self.settings.webhook_failing_seconds
                )
            except GrnsError as error:
                self.emit(TickFailed(_NAME, str(error)))
            if left:
                await asyncio.sleep(_NOTE_PAUSE_SECONDS)
        return None

    def _tell(self, claimed: Claimed, posted: SendResult, ending: Ending, seconds: float) -> None:
        said = (claimed.webhook_id, claimed.seq, claimed.kind, claimed.attempt)
        if ending.state == "delivered":
            self.emit(WebhookDelivered(*said, seconds))
        else:
            error = ending.error or "unknown"
            self.emit(WebhookNotDelivered(*said, error, posted.detail, seconds, ending.delay_seconds))

    async def _disable_flooded(self) -> None:
        if time.monotonic() < self._floods_at:
            return
        for webhook_id in await delivery.disable_flooded(self.database, self.settings.webhook_max_pending):
            self.emit(WebhookDisabled(webhook_id, "backlog"))
        self._floods_at = time.monotonic() + _LOOK_FOR_FLOODS_SECONDS


def _document(claimed: Claimed, event: DeliveryEvent) -> bytes:
    return webhook.document(
        workspace=claimed.workspace,
        version=event.version,
        message_id=claimed.message_id,
        trace_id=event.trace_id,
        causation_id=event.causation_id,
        kind=claimed.kind,
        emitted_at=event.emitted_at,
        payload=event.payload,
    )
