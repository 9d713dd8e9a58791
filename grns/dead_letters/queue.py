"""Rejected messages: each is kept whole as a dead letter before its delivery is ended."""

from __future__ import annotations

from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.errors import InvalidInputError, UnavailableError
from grns.nats.delivery import Delivery
from grns.postgres.database import Database, Session
from grns.telemetry.signal import Emit
from grns.telemetry.task_signals import DeliveryDeferred, RejectedMessageStored


class DeadLetterQueue:
    """Keeps rejected messages, with an event for subscribers, and only then ends the delivery."""

    def __init__(self, database: Database | Session, *, emit: Emit) -> None:
        self._database = database
        self._emit = emit

    async def reject(self, delivery: Delivery, reason: str, detail: str) -> bool:
        """Keep the message and end its delivery; return False if Postgres is away: it is given back."""
        self._emit(RejectedMessageStored(reason, delivery.subject, delivery.stream_seq, detail[:200]))
        message = RejectedMessage(
            reason, detail, delivery.subject, delivery.stream, delivery.stream_seq,
            delivery.delivery_count, delivery.headers, delivery.body,
        )  # fmt: skip
        try:
            await store_rejected(self._database, [message])
        except (UnavailableError, InvalidInputError) as error:
            self._emit(DeliveryDeferred("", type(error).__name__, str(error)[:200], 5.0))
            await delivery.nak(5.0)
            return False
        await delivery.term(reason)
        return True
