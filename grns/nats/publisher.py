"""Publishing with a window of unconfirmed messages, each of which gets exactly one answer."""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import Any

import orjson

from grns.errors import BrokerRefusedError, GrnsError, UnavailableError
from grns.model.subjects import STREAM_OF
from grns.nats.api import MESSAGE_TOO_LARGE, STORE_FAILED, ApiError, Replies, resolve
from grns.nats.connection import Connection
from grns.nats.messages import Done, Message, Receipt, lines, one_line

MESSAGE_ID = "Nats-Msg-Id"
# Let the loop read answers after so many messages in a row.
_BATCH = 250


class Publisher:
    """Sends at most `window` unanswered messages. A message that failed may still have been stored."""

    def __init__(
        self, connection: Connection, replies: Replies, *, window: int, stuck_after_seconds: float
    ) -> None:
        self._connection = connection
        self._prefix = connection.prefix
        self._replies = replies
        self._patience = stuck_after_seconds
        self._room = window
        self._has_room = asyncio.Event()
        self._sent = 0

    async def ready(self) -> int:
        """Wait for a connection and for room; return how many messages may be posted."""
        if self._sent >= _BATCH:
            self._sent = 0
            await asyncio.sleep(0)
            await self._connection.wait_drained()
        while self._room <= 0 or not self._connection.is_connected:
            await self._connection.wait_connected()
            if self._room <= 0:
                self._has_room.clear()
                await self._has_room.wait()
        return max(1, min(self._room, _BATCH - self._sent))

    def post(self, message: Message, done: Done) -> None:
        """Send one message; `done` gets its answer, exactly once."""
        self._room -= 1
        self._sent += 1
        subject = self._prefix + message.subject
        reply = self._replies.expect(subject, partial(self._settle, done), verdict)
        try:
            headers = f"{lines(message.headers)}{MESSAGE_ID}: {one_line(message.id)}\r\n"
            self._connection.publish(subject, message.body, reply=reply, headers=headers)
        except GrnsError as error:
            if self._replies.forget(reply):
                self._settle(done, error)

    def _settle(self, done: Done, answer: Receipt | GrnsError) -> None:
        self._room += 1
        if self._room == 1:
            self._has_room.set()
        done(answer)

    async def publish(self, message: Message) -> Receipt:
        """Send one message and return the answer, or raise it; fail if no connection comes."""
        answered: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

        try:
            async with asyncio.timeout(self._patience):
                await self._connection.wait_connected()
        except TimeoutError as error:
            raise UnavailableError(
                f"the broker has been away for {self._patience:g} s: nothing was sent"
            ) from error
        await self.ready()
        self.post(message, partial(resolve, answered))
        return await answered


def verdict(subject: str, body: bytes) -> Receipt | GrnsError | None:
    """Parse the answer of the subject's stream; return None if another program sent it.

    Subscribers of a subject see the reply subject of its messages, and may answer sooner than the stream.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if type(answer) is not dict:
        return None
    if "error" in answer:
        return _error(answer["error"])
    seq, names = answer.get("seq"), _stream_of(subject)
    if type(seq) is int and names is not None and answer.get("stream") == names[0]:
        return Receipt(names[1], seq, answer.get("duplicate") is True)
    return None


@lru_cache(maxsize=4096)
def _stream_of(subject: str) -> tuple[str, str] | None:
    """Return the name of a subject's stream, with and without the namespace."""
    namespace, separator, root = subject.partition(".")[0].rpartition("_")
    stream = STREAM_OF.get(root)
    return None if stream is None else (f"{namespace}{separator}{stream}", stream)


def _error(error: Any) -> GrnsError | None:
    """Parse an error of JetStream; return None for any other form."""
    if isinstance(error, dict) and type(error.get("code")) is int and type(error.get("err_code")) is int:
        return _refusal(ApiError(error))
    return None


def _refusal(error: ApiError) -> GrnsError:
    """Distinguish permanent refusals from temporary ones."""
    if error.number == MESSAGE_TOO_LARGE:
        return BrokerRefusedError("too_large", error.description)
    # The same number also says that the disk is full or failing.
    if error.number == STORE_FAILED and error.description.startswith("maximum "):
        return BrokerRefusedError("full", error.description)
    return error
