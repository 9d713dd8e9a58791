"""Requests on core NATS: taken in as they are read, answered by publishing to where their senders listen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from nats.aio.msg import Msg

from grns.nats.connection import Connection
from grns.nats.interface import Request
from grns.nats.subscription import NatsSubscription
from grns.nats.wire import lines

# The server lets anybody name any subject to answer to, also one that only we may publish on: a stream's, or
# JetStream's API. For other clusters and accounts it puts its own before the inbox, or in its place.
_INBOX = re.compile(r"(_GR_\.[^\s.*>]+\.[^\s.*>]+\.)?(_INBOX[^\s.*>]*|_R_)(\.[^\s.*>]+)+")


class NatsRequest:
    """Implements `Request`."""

    __slots__ = ("_connection", "_is_answered", "_message")

    def __init__(self, connection: Connection, message: Msg) -> None:
        self._connection = connection
        self._message = message
        self._is_answered = False

    @property
    def subject(self) -> str:
        """The subject the message was published on."""
        return self._message.subject.removeprefix(self._connection.prefix)

    @property
    def body(self) -> bytes:
        """The bytes, as they were sent."""
        return self._message.data

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, empty where there are none."""
        return self._message.headers or {}

    @property
    def is_awaited(self) -> bool:
        """True where there is an inbox to answer to."""
        return is_inbox(self._message.reply)

    def answer(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the answer, once."""
        if self._is_answered or not self.is_awaited:
            return
        self._connection.publish(self._message.reply, body, headers=lines(headers))
        self._is_answered = True


def is_inbox(reply: str) -> bool:
    """Say whether a subject is one on which nobody listens but for answers."""
    return _INBOX.fullmatch(reply) is not None


class _Serving:
    """Implements `Serving`."""

    def __init__(self, connection: Connection, subscription: NatsSubscription) -> None:
        self._connection = connection
        self._subscription = subscription

    async def stop(self) -> None:
        """Take in no more."""
        await self._connection.unsubscribe(self._subscription)


async def serve(
    connection: Connection, pattern: str, group: str, on_request: Callable[[Request], None]
) -> _Serving:
    """Take in requests on a subject, shared by the members of a group."""

    def receive(message: Msg) -> None:
        on_request(NatsRequest(connection, message))

    subject = connection.prefix + pattern
    return _Serving(connection, await connection.subscribe(subject, receive, group=group))
