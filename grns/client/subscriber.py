"""How a client subscribes to events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakSet

from grns.client.subscription import EventHandler, Subscription, known_kind
from grns.dead_letters.queue import DeadLetterQueue
from grns.errors import InvalidInputError, UnavailableError
from grns.model import subjects
from grns.model.json import Limits
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.telemetry.signal import Emit

EventHandlerT = TypeVar("EventHandlerT", bound=EventHandler)

_BROKER_SECONDS = 30.0
_DEEPEST = 10_000


class SubscriberMethods:
    """The methods of `Client` for events."""

    _handlers_database: Database
    _transport: JetStream
    _workspace: str
    _dead_letters: DeadLetterQueue
    _envelope_limits: Limits
    _emit: Emit
    _subscriptions: WeakSet[Subscription]

    async def subscribe(
        self,
        durable_name: str,
        handler: EventHandler,
        *,
        kinds: Sequence[str] = ("evt.task.*",),
        max_in_flight: int = 64,
    ) -> Subscription:
        """Subscribe to events with a durable position, which survives restarts.

        The handler runs inside a transaction that also marks the event as processed: what it writes through
        its connection happens once per event, however often the event is delivered. If the handler raises,
        the logger `grns` records it, and the event is delivered again.

        Args:
            durable_name: name of the durable consumer. Processes with the same name share its events. A new
                name starts with the oldest event that the broker still has (7 days).
            handler: coroutine function `handler(event, connection)`.
            kinds: kinds of events, such as `evt.task.dead` or `evt.task.*`.
            max_in_flight: maximum number of events that are delivered and not yet handled.

        Returns:
            The subscription; `stop` ends it.

        Raises:
            InvalidInputError: there are no events of such a kind.
            UnavailableError: the broker does not answer within 30 s.

        Example:
            async def on_dead(event, connection):
                await connection.execute("insert into alerts (task_id) values ($1)", event.payload.task_id)

            await client.subscribe("alerts", on_dead, kinds=["evt.task.dead"])
        """
        subscription = self._subscription(durable_name, handler, kinds, max_in_flight)
        try:
            async with asyncio.timeout(_BROKER_SECONDS):
                await self._transport.wait_connected()
        except TimeoutError as error:
            raise UnavailableError(f"no broker answered within {_BROKER_SECONDS:.0f} s") from error
        await subscription.open(self._transport)
        return subscription

    def on(
        self, *kinds: str, durable_name: str, max_in_flight: int = 64
    ) -> Callable[[EventHandlerT], EventHandlerT]:
        """Return a decorator that subscribes a function as `subscribe` does, once the broker is there.

        It subscribes in the background and tries until it succeeds; the logger `grns` records failures. The
        client ends the subscription when it closes.

        Args:
            kinds: kinds of events, such as `evt.task.dead` or `evt.task.*`.
            durable_name, max_in_flight: as in `subscribe`.

        Raises:
            InvalidInputError: there are no events of such a kind.

        Example:
            @client.on("evt.task.dead", durable_name="alerts")
            async def alert(event, connection):
                await connection.execute("insert into alerts (task_id) values ($1)", event.payload.task_id)
        """

        def decorate(handler: EventHandlerT) -> EventHandlerT:
            self._subscription(durable_name, handler, kinds, max_in_flight).open_soon(self._transport)
            return handler

        return decorate

    def _subscription(
        self, durable_name: str, handler: EventHandler, kinds: Sequence[str], max_in_flight: int
    ) -> Subscription:
        filters = [subjects.message(known_kind(kind), self._workspace) for kind in kinds]
        if not filters or isinstance(kinds, str):
            raise InvalidInputError("bad_kind", "kinds are a list of at least one, as ['evt.task.*']")
        if type(max_in_flight) is not int or not 1 <= max_in_flight <= _DEEPEST:
            raise InvalidInputError("bad_max_in_flight", f"max_in_flight is 1 to {_DEEPEST}")
        subscription = Subscription(
            subjects.token(durable_name, name="durable_name"),
            handler,
            filters=filters,
            max_in_flight=max_in_flight,
            database=self._handlers_database,
            dead_letters=self._dead_letters,
            limits=self._envelope_limits,
            emit=self._emit,
        )
        self._subscriptions.add(subscription)
        return subscription
