"""Requests to JetStream's own API, and the one inbox on which all answers arrive."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import orjson
from nats.aio.msg import Msg

from grns.errors import GrnsError, OutcomeUnknownError, UnavailableError
from grns.nats.connection import Connection, OnFact
from grns.nats.subscription import NatsSubscription, new_inbox

Answer = TypeVar("Answer")
# Gets the answer, or the reason why there is none.
OnAnswer = Callable[[Answer | GrnsError], None]
# Parses the body of an answer to a request on a subject; None if it is not an answer to that.
Read = Callable[[str, bytes], Answer | GrnsError | None]

_NO_RESPONDERS = "503"


class Replies:
    """Pending requests. Each ends exactly once: by the broker's answer, a time-out, or a lost connection.

    Any subscriber of a request's subject may answer it too: a body that `Read` rejects changes nothing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_seconds: float,
        on_fact: OnFact,
        on_error: Callable[[str, GrnsError], None] = lambda _subject, _error: None,
    ) -> None:
        """`on_error` gets each answer that is an error, with the subject of its request."""
        self._connection = connection
        self._timeout = timeout_seconds
        self._fact = on_fact
        self._on_error = on_error
        self._prefix = new_inbox(connection.inbox_prefix) + "."
        self._numbers = itertools.count(1)
        # In order of their deadlines, since all wait equally long.
        self._waiting: dict[str, tuple[float, str, OnAnswer[Any], Read[Any]]] = {}
        self._subscription: NatsSubscription | None = None
        self._sweeper: asyncio.Task[None] | None = None
        connection.on_disconnected.append(self._lose_all)
        connection.on_forbidden.append(self._refuse)

    async def open(self) -> None:
        """Subscribe to the inbox."""
        self._subscription = await self._connection.subscribe(
            self._prefix + "*", self._receive_message, self._receive
        )
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """End all pending requests."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        self._lose_all()

    def expect(self, subject: str, on_answer: OnAnswer[Answer], read: Read[Answer]) -> str:
        """Return the reply subject for a request to `subject`; neither callback may block."""
        reply = f"{self._prefix}{next(self._numbers)}"
        self._waiting[reply] = (time.monotonic() + self._timeout, subject, on_answer, read)
        return reply

    def forget(self, reply: str) -> bool:
        """Stop expecting an answer; return False if there was one."""
        return self._waiting.pop(reply, None) is not None

    def _receive_message(self, message: Msg) -> None:
        # Only the server sends this status; an empty body alone may come from any program.
        if not message.data and (message.headers or {}).get("Status") == _NO_RESPONDERS:
            self._end_without_responder(message.subject)
        else:
            self._receive(message.subject, message.data)

    def _end_without_responder(self, reply: str) -> None:
        if (expected := self._waiting.pop(reply, None)) is not None:
            silence = "no responders: the stream is missing, or nats-server runs without JetStream"
            self._on_error(expected[1], UnavailableError(silence))
            self._answer(expected[2], UnavailableError(silence))

    def _receive(self, reply: str, body: bytes) -> None:
        if (expected := self._waiting.get(reply)) is None:
            return
        if (answer := expected[3](expected[1], body)) is not None:
            del self._waiting[reply]
            if isinstance(answer, GrnsError):
                self._on_error(expected[1], answer)
            self._answer(expected[2], answer)

    def _lose_all(self) -> None:
        lost, self._waiting = self._waiting, {}
        for _, _, on_answer, _ in lost.values():
            self._answer(
                on_answer, OutcomeUnknownError("the connection to the broker was lost before it answered")
            )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._timeout / 10)
            self._expire(time.monotonic())

    def _expire(self, now: float) -> None:
        expired = list(itertools.takewhile(lambda item: item[1][0] <= now, self._waiting.items()))
        for reply, (_, subject, on_answer, _) in expired:
            if self.forget(reply):
                silence = f"the broker did not answer within {self._timeout:g} s ({subject})"
                self._answer(on_answer, OutcomeUnknownError(silence))

    def _refuse(self, violation: str) -> None:
        """End all requests to the subject that the server has just forbidden."""
        refused = [
            (reply, on_answer)
            for reply, (_, subject, on_answer, _) in self._waiting.items()
            if f'"{subject.lower()}"' in violation
        ]
        for reply, on_answer in refused:
            if self.forget(reply):
                self._answer(
                    on_answer,
                    UnavailableError(f"the broker does not permit this user to do that: {violation}"),
                )

    def _answer(self, on_answer: OnAnswer[Answer], answer: Answer | GrnsError) -> None:
        try:
            on_answer(answer)
        except Exception as error:  # one bad callback must not cost the others their answers
            with contextlib.suppress(Exception):
                self._fact("callback_failed", {"error": f"{type(error).__name__}: {error}"})


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
_TYPE = "io.nats.jetstream.api.v1."


class ApiError(UnavailableError):
    """An error of JetStream. One with an unknown number may be temporary: try again."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = _number(error.get("code"))
        self.number = _number(error.get("err_code"))
        self.description = str(error.get("description", ""))
        super().__init__(f"the broker answered: {self.description} ({self.number})")

    @property
    def is_out_of_room(self) -> bool:
        """True if JetStream stores nothing: it has no room, its disk is full, or it has stopped."""
        # A stream that is full by its own limits has the same number as a disk that is.
        is_limit = self.number == STORE_FAILED and self.description.startswith("maximum ")
        return self.number in _OUT_OF_ROOM and not is_limit


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


class Api:
    """Sends requests to JetStream's API."""

    def __init__(self, connection: Connection, replies: Replies) -> None:
        self._connection = connection
        self._replies = replies

    async def call(self, operation: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to `$JS.API.<operation>`, or raise `ApiError` or another `UnavailableError`."""
        if not self._connection.is_connected:
            raise UnavailableError("the broker is away")
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        subject = f"$JS.API.{operation}"
        reply = self._replies.expect(subject, lambda answer: resolve(answered, answer), read_answer)
        try:
            body = b"" if request is None else orjson.dumps(request)
            self._connection.publish(subject, body, reply=reply)
            return await answered
        finally:
            self._replies.forget(reply)

    async def durables(self, stream: str) -> AsyncIterator[dict[str, Any]]:
        """Read the descriptions of all durables of a stream, page by page."""
        offset, total = 0, 1
        while offset < total:
            page = await self.call(f"CONSUMER.LIST.{stream}", {"offset": offset})
            consumers = page.get("consumers") or []
            if not consumers:
                return
            for consumer in consumers:
                yield consumer
            offset, total = offset + len(consumers), page.get("total", 0)


def resolve(answered: asyncio.Future[Answer], answer: Answer | GrnsError) -> None:
    """Settle a future, unless it was cancelled."""
    if answered.done():
        return
    if isinstance(answer, GrnsError):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)


def read_answer(_subject: str, body: bytes) -> dict[str, Any] | ApiError | None:
    """Parse an answer of JetStream; return None if another program sent it.

    A program that subscribes to everything sees these requests too, and may answer them.
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
