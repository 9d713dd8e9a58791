"""What is listened to, independent of the client that does it."""

from __future__ import annotations

import contextlib
import secrets

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as ClientSubscription

from grns.nats.messages import bad_subject, check_pattern
from grns.nats.patched_client import MessageHandler, NatsClient, OnMessage, OnPlain


def new_inbox(prefix: str) -> str:
    """Return a subject that nobody else listens to; it begins with `prefix`."""
    return f"{prefix}.{secrets.token_hex(11)}"


class NatsSubscription:
    """One subject that is listened to. `handler` may be exchanged at any time; it must not block.

    Where there is an `on_plain`, it takes what has neither headers nor a reply: in less time. Of the
    members of one `group`, each message goes to one.
    """

    __slots__ = ("_bound", "_group", "_has_ended", "_line", "_on_plain", "handler", "subject")

    def __init__(
        self, subject: str, handler: OnMessage, on_plain: OnPlain | None = None, *, group: str = ""
    ) -> None:
        check_pattern(subject)
        self.subject = subject
        self.handler = handler
        self._on_plain = on_plain
        self._group = group
        self._line: NatsClient | None = None
        self._bound: ClientSubscription | None = None
        self._has_ended = False

    async def bind(self, line: NatsClient) -> None:
        """Listen on this line, once. One that is gone is soon replaced, and binds what it finds."""
        if self._has_ended or self._line is line:
            return
        self._line, self._bound = line, None
        bound: ClientSubscription | None = None
        try:
            with contextlib.suppress(nats_errors.ConnectionClosedError):
                bound = await line.client.subscribe(
                    self.subject,
                    queue=self._group,
                    cb=self._receive,
                    pending_msgs_limit=0,
                    pending_bytes_limit=0,
                )
        except nats_errors.BadSubjectError as error:
            raise bad_subject(self.subject) from error
        finally:
            if bound is None or self._has_ended or self._line is not line:
                line.forget(self._receive)
            else:
                line.set_handler(bound, MessageHandler(lambda message: self.handler(message), self._on_plain))
                self._bound = bound

    def abandon(self) -> None:
        """Be as if it had never been made."""
        self._has_ended = True
        if self._line is not None:
            self._line.forget(self._receive)

    async def drop(self) -> None:
        """Stop listening; what is on its way is lost."""
        self._has_ended = True
        if self._bound is not None:
            with contextlib.suppress(nats_errors.Error):
                await self._bound.unsubscribe()

    async def drain(self) -> None:
        """Stop listening; the handler still gets what the server had sent."""
        self._has_ended = True
        if self._bound is None or self._line is None or not self._line.is_connected:
            await self.drop()
        else:
            await self._line.drain(self._bound)

    async def _receive(self, message: Msg) -> None:
        self.handler(message)
