"""The webhook sender: sends events of the log to webhooks, at least once, until each is accepted.

The statement that moves the cursor creates one delivery for each event and webhook. A sender claims a
delivery, attempts it, and finishes it or schedules a retry. If the sender dies in between, the delivery is
due again when its lease ends; each attempt has the same message id. Any number of senders may run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import uuid4

from grns.errors import ContendedError, GrnsError, InvalidInputError, OutcomeUnknownError, SealedError
from grns.model.secret import mask_bytes
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
from grns.webhooks import signature
from grns.webhooks.deliveries import ClaimedDelivery, DeliveryEvent, DeliveryOutcome
from grns.webhooks.http import HttpSender, SendResult
from grns.webhooks.signature import Secret

_NAME = "webhook_sender"
_MOST_NUMBERS = 2000
_MOST_OF_ONE = 10
_MOST_OF_FAILING = 1
_FLOOD_CHECK_SECONDS = 10.0
# Beyond the longest attempt: time to persist its outcome, and to try that again.
_LEASE_MORE_SECONDS = 45.0
_NOTE_TIMES = 3
_NOTE_PAUSE_SECONDS = 1.0
_GONE = 410
# Errors that end a delivery and that its webhook did not cause.
_NOT_CAUSED_BY_WEBHOOK = ("event_gone", "given_up")
_SEALED = ("no_key", "not_ours")  # its secrets cannot be opened here
_HONOR_RETRY_AFTER = (429, 503)


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
        """Wait for attempts in progress."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def tick(self) -> float:
        """Create deliveries for new events, and start the due ones."""
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
        """Create deliveries for the next rows of the log; return True if there are more rows."""
        try:
            made = await delivery.create_deliveries(self.database, self._batch_size.rows)
        except (InvalidInputError, ContendedError, OutcomeUnknownError):
            self._batch_size.shorten()
            raise
        self._batch_size.lengthen()
        if made is None:
            self._make_at = time.monotonic() + self.tick_seconds
            return False
        lag = made.settled - made.low
        self.emit(WebhookDeliveriesMade(made.deliveries, made.low, lag, made.age_seconds))
        self._make_at = 0.0 if lag else time.monotonic() + self.tick_seconds
        return lag > 0

    # ------------------------------------------------------------ attempts

    async def _start(self, *, is_failing: bool) -> None:
        """Claim due deliveries while there is room, and start their attempts."""
        window = self.settings.webhook_window
        room = window - len(self._under_way)
        of_one = _MOST_OF_FAILING if is_failing else _MOST_OF_ONE
        if is_failing:
            # Failing webhooks, which may be slow, must not take the room of the others.
            room = min(room, max(1, window // 4) - self._failing)
        if room <= 0:
            return
        busy = Counter(self._busy)
        taken = await delivery.claim_deliveries(
            self.database,
            uuid4(),
            is_failing=is_failing,
            of_one=of_one,
            limit=room,
            lease_seconds=self.settings.webhook_timeout_seconds + _LEASE_MORE_SECONDS,
            busy=busy,
            keys=() if (keyring := self.database.vault.keys) is None else keyring.names,
        )
        taken_at = time.monotonic()
        for claimed in taken:
            self._begin(claimed, taken_at, is_failing=is_failing)
        if not is_failing:
            # Compared with what was asked for: attempts may have ended while the statement ran.
            counts = Counter(claimed.webhook_id for claimed in taken)
            self._is_more_due = len(taken) >= room or any(
                count >= of_one - busy[webhook_id] for webhook_id, count in counts.items()
            )

    def _begin(self, claimed: ClaimedDelivery, taken_at: float, *, is_failing: bool) -> None:
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
            self._claim_more(claimed.webhook_id)

        attempt.add_done_callback(end)

    def _claim_more(self, webhook_id: str) -> None:
        """Claim more at once if more were due and enough attempts have ended to be worth a statement."""
        is_room = (
            self._busy[webhook_id] * 2 <= _MOST_OF_ONE
            or len(self._under_way) * 2 <= self.settings.webhook_window
        )
        if self._is_more_due and is_room:
            self._is_more_due = False
            self.wake()

    async def _attempt(self, claimed: ClaimedDelivery, taken_at: float) -> None:
        """Send one delivery once, and persist its outcome."""
        began_at = time.monotonic()
        result = await self._send(claimed, taken_at)
        seconds = time.monotonic() - began_at
        outcome = self._outcome(claimed, result, seconds)
        is_disabled = await self._persist(claimed, outcome)
        if is_disabled is None:
            return  # another sender has claimed it, or its outcome could not be persisted: it is sent again
        self._emit_outcome(claimed, result, outcome, seconds)
        if is_disabled:
            self.emit(WebhookDisabled(claimed.webhook_id, "gone" if outcome.is_gone else "failing"))

    async def _send(self, claimed: ClaimedDelivery, taken_at: float) -> SendResult:
        event = claimed.event
        if event is None:
            return SendResult(error="event_gone", detail="the event log no longer has the event")
        if claimed.attempt > self.settings.webhook_attempts:
            return SendResult(error="given_up", detail="the sender of the last attempt did not finish it")
        try:
            to = self.guard.destination(claimed.url)
        except InvalidInputError as error:  # the URL policy has changed since the webhook was created
            return SendResult(error=error.code, detail=str(error))
        body = _document(claimed, event)
        timestamp = int(claimed.now_seconds + time.monotonic() - taken_at)
        try:
            opened = [self.database.vault.open_key(one, claimed.workspace) for one in claimed.secrets]
        except SealedError as error:
            return SendResult(error=error.code, detail=str(error))
        headers = signature.sign(map(Secret, opened), claimed.message_id, timestamp, body)
        return await self.http.post(to, headers, body)

    def _outcome(self, claimed: ClaimedDelivery, result: SendResult, seconds: float) -> DeliveryOutcome:
        """Decide the outcome of an attempt."""
        took = round(1000 * seconds)
        if result.is_success:
            return DeliveryOutcome("delivered", status_code=result.status, duration_ms=took)
        is_gone = result.status == _GONE
        is_lost = result.error in _NOT_CAUSED_BY_WEBHOOK
        if is_gone or is_lost or claimed.attempt >= self.settings.webhook_attempts:
            return DeliveryOutcome(
                "failed",
                status_code=result.status,
                error=result.error,
                duration_ms=took,
                counts_for_webhook=not is_lost and result.error not in _SEALED,
                is_gone=is_gone,
            )
        asked = result.retry_after_seconds if result.status in _HONOR_RETRY_AFTER else None
        delay = webhook.delay_seconds(claimed.attempt, random.random(), asked_seconds=asked)
        return DeliveryOutcome(
            "pending",
            delay,
            result.status,
            result.error,
            took,
            counts_for_webhook=result.error not in _SEALED,
        )

    async def _persist(self, claimed: ClaimedDelivery, outcome: DeliveryOutcome) -> bool | None:
        """Persist the outcome; if that fails, the delivery is due again at the end of its lease."""
        for left in reversed(range(_NOTE_TIMES)):
            try:
                return await delivery.finish_delivery(
                    self.database, claimed, outcome, failing_seconds=self.settings.webhook_failing_seconds
                )
            except GrnsError as error:
                self.emit(TickFailed(_NAME, str(error)))
            if left:
                await asyncio.sleep(_NOTE_PAUSE_SECONDS)
        return None

    def _emit_outcome(
        self, claimed: ClaimedDelivery, result: SendResult, outcome: DeliveryOutcome, seconds: float
    ) -> None:
        labels = (claimed.webhook_id, claimed.seq, claimed.kind, claimed.attempt)
        if outcome.state == "delivered":
            self.emit(WebhookDelivered(*labels, seconds))
        else:
            error = outcome.error or "unknown"
            self.emit(WebhookNotDelivered(*labels, error, result.detail, seconds, outcome.delay_seconds))

    async def _disable_flooded(self) -> None:
        if time.monotonic() < self._floods_at:
            return
        for webhook_id in await delivery.disable_flooded(self.database, self.settings.webhook_max_pending):
            self.emit(WebhookDisabled(webhook_id, "backlog"))
        self._floods_at = time.monotonic() + _FLOOD_CHECK_SECONDS


def _document(claimed: ClaimedDelivery, event: DeliveryEvent) -> bytes:
    body = webhook.document(
        workspace=claimed.workspace,
        version=event.version,
        was=event.was,
        message_id=claimed.message_id,
        trace_id=event.trace_id,
        causation_id=event.causation_id,
        kind=claimed.kind,
        emitted_at=event.emitted_at,
        payload=event.payload,
    )
    return mask_bytes(body)
