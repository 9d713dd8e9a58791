"""Requests to JetStream's own API: JSON in, JSON out, errors by their number."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from grns.errors import GrnsError, UnavailableError
from grns.nats.connection import Connection
from grns.nats.reply import Replies

NO_STREAM = 10059
NO_CONSUMER = 10014
NO_MESSAGE = 10037
NO_SEQUENCE = 10043
NO_ROOM = 10047
NOT_DELETED = 10057
STREAM_EXISTS = 10058
CONSUMER_EXISTS = 10148
STORE_FAILED = 10077
MESSAGE_TOO_LARGE = 10054
TEMPORARY = 503
# Too little memory or storage, a full disk, no JetStream in this account or on this server.
_OUT_OF_ROOM = frozenset({10023, 10028, 10035, 10039, NO_ROOM, 10074, 10076, STORE_FAILED})
_TYPE = "io.nats.jetstream.api.v1."  # how what its answers say of themselves begins


class ApiError(UnavailableError):
    """JetStream answered with an error. Where nobody knows its number, trying again is what is left."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = _number(error.get("code"))
        self.number = _number(error.get("err_code"))
        self.description = str(error.get("description", ""))
        super().__init__(f"the broker answered: {self.description} ({self.number})")

    @property
    def is_out_of_room(self) -> bool:
        """True where JetStream stores nothing: it has no room, its disk is full, or it has stopped."""
        # A stream that is full by its own limits has the same number as a disk that is.
        is_limit = self.number == STORE_FAILED and self.description.startswith("maximum ")
        return self.number in _OUT_OF_ROOM and not is_limit


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


class Api:
    """Asks JetStream."""

    def __init__(self, connection: Connection, replies: Replies) -> None:
        self._connection = connection
        self._replies = replies

    async def call(self, operation: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to `$JS.API.<operation>`, or raise `ApiError` or another `UnavailableError`."""
        if not self._connection.is_connected:
            raise UnavailableError("the broker is away")
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        subject = f"$JS.API.{operation}"
        reply = self._replies.expect(subject, lambda answer: _resolve(answered, answer), said)
        try:
            body = b"" if request is None else orjson.dumps(request)
            self._connection.publish(subject, body, reply=reply)
            return await answered
        finally:
            self._replies.forget(reply)


def _resolve(answered: asyncio.Future[dict[str, Any]], answer: dict[str, Any] | GrnsError) -> None:
    if answered.done():
        return
    if isinstance(answer, GrnsError):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)


def said(_subject: str, body: bytes) -> dict[str, Any] | ApiError | None:
    """Return what JetStream has said; None where it is not JetStream that speaks.

    Whoever listens to everything sees its requests too, and may answer them out of habit.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if type(answer) is not dict or not str(answer.get("type")).startswith(_TYPE):
        return None
    if "error" in answer:
        return ApiError(answer["error"] if type(answer["error"]) is dict else {})
    return answer
