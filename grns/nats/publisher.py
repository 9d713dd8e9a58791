"""Publishing with a window: many messages await the broker's answer at a time, each gets exactly one."""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import Any

import orjson

from grns.errors import BrokerRefusedError, GrnsError, UnavailableError
from grns.model.subjects import STREAM_OF
from grns.nats.api import MESSAGE_TOO_LARGE, STORE_FAILED, ApiError, Replies
from grns.nats.connection import Connection
from grns.nats.messages import Done, Message, Receipt, lines, one_line

MESSAGE_ID = "Nats-Msg-Id"
# After so many messages in a row the answers get their turn.
_BREATH = 250


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
        """Return, once there is a connection, how much room there is; `UnavailableError` once it is
        closed."""
        if self._sent >= _BREATH:
            self._sent = 0
            await asyncio.sleep(0)
            await self._connection.wait_drained()
        while self._room <= 0 or not self._connection.is_connected:
            await self._connection.wait_connected()
            if self._room <= 0:
                self._has_room.clear()
                await self._has_room.wait()
        return max(1, min(self._room, _BREATH - self._sent))

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
        """Send one message and wait for the answer, or raise it; give up where no connection comes."""
        answered: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

        def done(answer: Receipt | GrnsError) -> None:
            if answered.done():
                return
            if isinstance(answer, GrnsError):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        try:
            async with asyncio.timeout(self._patience):
                await self._connection.wait_connected()
        except TimeoutError as error:
            raise UnavailableError(
                f"the broker has been away for {self._patience:g} s: nothing was sent"
            ) from error
        await self.ready()
        self.post(message, done)
        return await answered


def verdict(subject: str, body: bytes) -> Receipt | GrnsError | None:
    """Return what the answer of the subject's stream means; None where it is not the stream that speaks.

    Whoever listens to a subject sees where its messages are to be answered, and may do so:
    out of habit, and sooner than the stream.
    """
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if type(said) is not dict:
        return None
    if "error" in said:
        return _error(said["error"])
    seq, names = said.get("seq"), _stream_of(subject)
    if type(seq) is int and names is not None and said.get("stream") == names[0]:
        return Receipt(names[1], seq, said.get("duplicate") is True)
    return None


@lru_cache(maxsize=4096)
def _stream_of(subject: str) -> tuple[str, str] | None:
    """Return the stream of a subject: how the broker calls it, and how we do."""
    namespace, separator, root = subject.partition(".")[0].rpartition("_")
    stream = STREAM_OF.get(root)
    return None if stream is None else (f"{namespace}{separator}{stream}", stream)


def _error(error: Any) -> GrnsError | None:
    """Return what JetStream refuses; None for an error that is not in its form."""
    if isinstance(error, dict) and type(error.get("code")) is int and type(error.get("err_code")) is int:
        return _refusal(ApiError(error))
    return None


def _refusal(error: ApiError) -> GrnsError:
    """Tell what will never be taken from what may be taken later."""
    if error.number == MESSAGE_TOO_LARGE:
        return BrokerRefusedError("too_large", error.description)
    # The same number also says that the disk is full or failing.
    if error.number == STORE_FAILED and error.description.startswith("maximum "):
        return BrokerRefusedError("full", error.description)
    return error
