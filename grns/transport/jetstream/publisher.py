"""Publishing with a window: many messages await the broker's answer at a time, each gets exactly one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nats.aio.msg import Msg

from grns.errors import BrokerRefused, GrnsError, OutcomeUnknown, Unavailable
from grns.transport.base import Done, Message, Receipt
from grns.transport.jetstream.api import MESSAGE_TOO_LARGE, STORE_FAILED, ApiError, parse
from grns.transport.jetstream.connection import Connection
from grns.transport.jetstream.reply import Replies

MESSAGE_ID = "Nats-Msg-Id"
# "NATS/1.0", the empty line behind the headers, and ": " with a line end for each of them.
_FRAME_BYTES, _HEADER_BYTES, _UTF8_BYTES = 12, 4, 4


class Publisher:
    """Sends at most `window` unanswered messages. A message that failed may still have been stored."""

    def __init__(
        self, connection: Connection, replies: Replies, *, window: int, patience_seconds: float
    ) -> None:
        self._connection = connection
        self._replies = replies
        self._patience = patience_seconds
        self._room = asyncio.Semaphore(window)

    async def send(self, message: Message, done: Done) -> None:
        """Send one message as soon as there is room and a connection; `done` gets its answer."""
        await self._room.acquire()
        try:
            if not self._connection.is_connected:
                await self._connection.wait_connected()
            headers = {**message.headers, MESSAGE_ID: message.id}
            self._check_size(message, headers)
        except GrnsError as error:
            self._finish(done, error)
            return
        except BaseException:
            self._room.release()
            raise
        reply = self._replies.expect(message.subject, lambda answer: self._finish(done, answer))
        try:
            await self._connection.publish(message.subject, message.body, reply=reply, headers=headers)
        except GrnsError as error:
            if self._replies.forget(reply):
                self._finish(done, error)

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
            raise Unavailable(
                f"the broker has been away for {self._patience:g} s: nothing was sent"
            ) from error
        await self.send(message, done)
        return await answered

    def _check_size(self, message: Message, headers: Mapping[str, str]) -> None:
        """Refuse what the server would answer by closing the connection."""
        limit = self._connection.max_payload
        frame = len(message.body) + _FRAME_BYTES + _HEADER_BYTES * len(headers)
        characters = sum(map(len, headers)) + sum(map(len, headers.values()))
        if frame + _UTF8_BYTES * characters <= limit:
            return
        size = frame + sum(len(name) + len(value.encode()) for name, value in headers.items())
        if size > limit:
            raise BrokerRefused("too_large", f"a message of {size} bytes is more than the broker's {limit}")

    def _finish(self, done: Done, answer: Msg | GrnsError) -> None:
        self._room.release()
        done(answer if isinstance(answer, GrnsError) else verdict(answer))


def verdict(answer: Msg) -> Receipt | GrnsError:
    """Return what a stream's answer means for the message."""
    try:
        stored = parse(answer)
        return Receipt(stored["stream"], stored["seq"], bool(stored.get("duplicate", False)))
    except ApiError as error:
        return _refusal(error)
    except Unavailable as error:
        return error
    except KeyError:
        return OutcomeUnknown("something other than a stream has answered")


def _refusal(error: ApiError) -> GrnsError:
    """Tell what will never be taken from what may be taken later."""
    if error.number == MESSAGE_TOO_LARGE:
        return BrokerRefused("too_large", error.description)
    # The same number also says that the disk is full or failing.
    if error.number == STORE_FAILED and error.description.startswith("maximum "):
        return BrokerRefused("full", error.description)
    return error
