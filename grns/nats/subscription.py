"""Subscriptions that survive the client of nats-py."""

from __future__ import annotations

import contextlib
import secrets

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from grns.nats.messages import bad_subject, check_pattern
from grns.nats.patched_client import MessageHandler, NatsClient, OnMessage, OnPlain


def new_inbox(prefix: str) -> str:
    """Return a new subject for answers, which begins with `prefix`."""
    return f"{prefix}.{secrets.token_hex(11)}"


class NatsSubscription:
    """One subscription. `handler` may be replaced at any time; it must not block.

    `on_plain`, if given, gets messages without headers and reply, in less time. Each message goes to one
    member of a `group`.
    """

    __slots__ = ("_bound", "_client", "_group", "_has_ended", "_on_plain", "handler", "subject")

    def __init__(
        self, subject: str, handler: OnMessage, on_plain: OnPlain | None = None, *, group: str = ""
    ) -> None:
        check_pattern(subject)
        self.subject = subject
        self.handler = handler
        self._on_plain = on_plain
        self._group = group
        self._client: NatsClient | None = None
        self._bound: ClientSubscription | None = None
        self._has_ended = False

    async def bind(self, client: NatsClient) -> None:
        """Subscribe on this client, once. One that is gone is soon replaced, and binds all subscriptions."""
        if self._has_ended or self._client is client:
            return
        self._client, self._bound = client, None
        bound: ClientSubscription | None = None
        try:
            with contextlib.suppress(nats_errors.ConnectionClosedError):
                bound = await client.client.subscribe(
                    self.subject,
                    queue=self._group,
                    cb=self._receive,
                    pending_msgs_limit=0,
                    pending_bytes_limit=0,
                )
        except nats_errors.BadSubjectError as error:
            raise bad_subject(self.subject) from error
        finally:
            if bound is None or self._has_ended or self._client is not client:
                client.forget(self._receive)
            else:
                client.set_handler(
                    bound, MessageHandler(lambda message: self.handler(message), self._on_plain)
                )
                self._bound = bound

    def abandon(self) -> None:
        """Undo a subscription that failed halfway."""
        self._has_ended = True
        if self._client is not None:
            self._client.forget(self._receive)

    async def drop(self) -> None:
        """Unsubscribe; messages on their way are lost."""
        self._has_ended = True
        if self._bound is not None:
            with contextlib.suppress(nats_errors.Error):
                await self._bound.unsubscribe()

    async def drain(self) -> None:
        """Unsubscribe; the handler still gets the messages that the server had sent."""
        self._has_ended = True
        if self._bound is None or self._client is None or not self._client.is_connected:
            await self.drop()
        else:
            await self._client.drain(self._bound)

    async def _receive(self, message: Msg) -> None:
        self.handler(message)
