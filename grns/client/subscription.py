"""Durable subscriptions: a handler sees every event once, in the transaction of its own writes."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import GrnsError, InvalidInputError, RejectedError, UnavailableError
from grns.model import envelope, subjects
from grns.model import events as payloads
from grns.model.envelope import Envelope
from grns.model.failure import error_message, traceback_text
from grns.model.json import Limits
from grns.nats import JetStream
from grns.nats.consumer import Consumer
from grns.nats.delivery import Delivery
from grns.nats.messages import whole_number
from grns.postgres.database import Connection, Database
from grns.postgres.errors import translated
from grns.postgres.statements import statement
from grns.telemetry.service_signals import TransportFailing
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import EventNotHandled, EventSkipped

_RETRY_SECONDS = 1.0
_OPEN_AGAIN_SECONDS = 5.0
_KINDS = re.compile(r"evt(\.([A-Za-z0-9_-]{1,64}|\*)){2,3}\Z")
_AGENTS_EVENT = next(kind for kind in payloads.PATTERNS if kind.startswith("evt."))
_EVENTS = [kind for kind in (*payloads.PAYLOADS, *payloads.PATTERNS) if kind.startswith("evt.")]

EventHandler = Callable[["Event[Any]", Connection], Awaitable[None]]
PayloadT = TypeVar("PayloadT", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Event(Generic[PayloadT]):
    """An event.

    `version` orders the events of a task; a gap means that you missed one. `payload` is the model of the
    kind (`grns.events`), `envelope` the whole message, `subject` its NATS subject.

    Example:
        async def on_dead(event: grns.Event[grns.events.TaskDead], connection) -> None:
            print(event.payload.task_id, event.payload.error_class)
    """

    envelope: Envelope
    subject: str
    task_id: str | None
    version: int | None
    payload: PayloadT

    @property
    def kind(self) -> str:
        """Kind of the event, such as `evt.task.completed`."""
        return self.envelope.kind


class Subscription:
    """A running durable subscription. `stop` ends it; its position stays."""

    def __init__(
        self,
        name: str,
        handler: EventHandler,
        *,
        filters: Sequence[str],
        max_in_flight: int,
        database: Database,
        dead_letters: DeadLetterQueue,
        limits: Limits,
        emit: Emit,
    ) -> None:
        self._name = name
        self._handler = handler
        self._database = database
        self._dead_letters = dead_letters
        self._limits = limits
        self._emit = emit
        self._filters = filters
        self._max_in_flight = max_in_flight
        self._consumer: Consumer | None = None
        self._arrived: asyncio.Queue[Delivery] = asyncio.Queue()
        self._handling: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None

    async def open(self, transport: JetStream) -> None:
        """Start to receive."""
        self._consumer = await transport.subscribe(
            self._name, self._filters, self._arrived.put_nowait, depth=self._max_in_flight
        )
        self._handling = asyncio.create_task(self._handle_all())

    def open_soon(self, transport: JetStream) -> None:
        """Start to receive once the broker is there; try until that succeeds."""
        self._opening = asyncio.create_task(self._open(transport))

    async def _open(self, transport: JetStream) -> None:
        while True:
            await transport.wait_connected()
            try:
                await self.open(transport)
            except GrnsError as error:
                self._emit(TransportFailing("subscription_failed", f"{self._name}: {error}"))
                await asyncio.sleep(_OPEN_AGAIN_SECONDS)
            else:
                return

    async def stop(self) -> None:
        """End the subscription; events that are not handled are given back."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
        if self._handling is not None:
            self._handling.cancel()
            await asyncio.gather(self._handling, return_exceptions=True)
        while not self._arrived.empty():
            await _give_back(self._arrived.get_nowait())

    async def _handle_all(self) -> None:
        while not _is_cancelled():  # a handler may have swallowed it
            delivery = await self._arrived.get()
            try:
                # In a task of its own: a handler that cancels the one it runs in ends no more than that.
                await asyncio.create_task(self._handle(delivery))
            except (Exception, asyncio.CancelledError) as error:
                await self._settle(delivery, error)
            finally:
                if self._consumer is not None:
                    self._consumer.done()

    async def _settle(self, delivery: Delivery, error: BaseException) -> None:
        """Give an event back that was not handled: at once while stopping, later after an error."""
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            await _give_back(delivery)
            return
        self._emit(self._fault(delivery, error))
        await _give_back(delivery, _RETRY_SECONDS)
        if isinstance(error, UnavailableError):  # the next ones could not be handled either
            await asyncio.sleep(_RETRY_SECONDS)

    def _fault(self, delivery: Delivery, error: BaseException) -> EventNotHandled:
        return EventNotHandled(
            self._name, delivery.subject, delivery.stream_seq, type(error).__name__,
            error_message(error)[:500], "" if isinstance(error, UnavailableError) else traceback_text(error),
        )  # fmt: skip

    async def _handle(self, delivery: Delivery) -> None:
        """Handle one event: the mark and the handler's writes commit together."""
        if not any(subjects.matches(wanted, delivery.subject) for wanted in self._filters):
            # After a power cut, nats-server may deliver again by number, past the filter of the durable.
            self._emit(EventSkipped(self._name, delivery.subject, delivery.stream_seq))
            await delivery.ack()
            return
        try:
            event = read_event(delivery, self._limits)
        except RejectedError as error:
            await self._dead_letters.reject(delivery, error.code, str(error))
            return
        async with self._database.transaction() as connection:
            marked = await connection.fetchrow(
                statement("mark_processed"), self._name, event.envelope.message_id
            )
            if marked is not None:
                await self._handler(event, connection)
                with (
                    translated()
                ):  # where the handler has caught what ended the transaction, nothing is written
                    await connection.execute("select 1")
        with suppress(GrnsError):  # it comes again, and is marked
            await delivery.ack()


def _is_cancelled() -> bool:
    """Tell whether we are to end; a handler may raise `CancelledError` for what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _give_back(delivery: Delivery, delay_seconds: float = 0.0) -> None:
    """Have it delivered again; where the broker cannot be told, it does so by itself."""
    with suppress(GrnsError):
        await delivery.nak(delay_seconds)


def read_event(delivery: Delivery, limits: Limits) -> Event[Any]:
    """Return a delivery as an event; `RejectedError` where it is none."""
    said = envelope.decode(delivery.body, subject=delivery.subject, limits=limits)
    return Event(
        said,
        delivery.subject,
        delivery.headers.get("Grns-Task"),
        whole_number(delivery.headers.get("Grns-Version", "")),
        said.payload if said.payload.get("truncated") is True else payloads.read(said),
    )


def known_kind(kind: str) -> str:
    """Return a kind of event, or a pattern of some, as it is; `InvalidInputError` where no event can be of
    it."""
    if not isinstance(kind, str) or not _KINDS.match(kind):
        raise InvalidInputError("bad_kind", f"no kind of event, nor a pattern of some: {ascii(kind)[:100]}")
    if not any(_may_be(kind, known) for known in _EVENTS):
        near = difflib.get_close_matches(kind, (*_EVENTS, "evt.task.*"), n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are evt.task.* and {_AGENTS_EVENT}"
        raise InvalidInputError("bad_kind", f"no event is of the kind {kind[:100]}: {advice}")
    return kind


def _may_be(pattern: str, known: str) -> bool:
    """Tell whether there can be an event of this known kind that the pattern takes."""
    pieces, words = pattern.split("."), known.split(".")
    return len(pieces) == len(words) and all(
        piece in ("*", word) or word.startswith("<") for piece, word in zip(pieces, words, strict=True)
    )
