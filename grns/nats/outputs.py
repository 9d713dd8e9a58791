"""The stream of what handlers stream: in memory, for those who begin to watch later, or come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from nats.aio.msg import Msg

from grns.errors import NotFoundError, UnavailableError
from grns.model import subjects
from grns.nats.connection import Connection
from grns.nats.provision import MINUTE, Config
from grns.nats.subscription import new_inbox
from grns.settings import Settings

_MOST_OF_TASK = 4096
_AT_ONCE = 500
_ANSWER_SECONDS = 2.0


def expected_outputs(settings: Settings) -> Config:
    """Return the configuration of the stream: one server has it, and forgets it when it stops."""
    return {
        "name": settings.nats_prefix + subjects.OUT_STREAM,
        "subjects": [f"{settings.nats_prefix}out.>"],
        "storage": "memory",
        "num_replicas": 1,
        "retention": "limits",
        "discard": "old",
        "max_age": 15 * MINUTE,
        "max_bytes": settings.nats_out_max_bytes,
        "max_msgs_per_subject": _MOST_OF_TASK,
        "allow_direct": True,
    }


class Outputs:
    """Reads what was streamed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def stored(self, subject: str) -> list[bytes]:
        """Return the messages of a subject that the broker still has, oldest first.

        Raises:
            NotFoundError: the stream does not exist.
            UnavailableError: the broker is away.
        """
        found: list[bytes] = []
        seq, left = 1, 1
        while left > 0:
            page = [one async for one in self._page(subject, seq)]
            for message in page:
                found.append(message.data)
                seq = int((message.headers or {}).get("Nats-Sequence", seq)) + 1
                left = int((message.headers or {}).get("Nats-Num-Pending", 0))
            if not page:
                break
        return found

    async def _page(self, subject: str, seq: int) -> AsyncIterator[Msg]:
        """Yield messages from a number on, until the server says that there are no more now."""
        prefix = self._connection.prefix
        async with self._answers() as (inbox, answers):
            request = {"seq": seq, "batch": _AT_ONCE, "next_by_subj": prefix + subject}
            self._connection.publish(
                f"$JS.API.DIRECT.GET.{prefix}{subjects.OUT_STREAM}", orjson.dumps(request), reply=inbox
            )
            while True:
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        message = await answers.get()
                except TimeoutError as error:
                    raise UnavailableError("the broker does not answer") from error
                status = (message.headers or {}).get("Status")
                if status in ("204", "404"):
                    return
                if status == "503":
                    raise NotFoundError(f"the broker has no stream {prefix}{subjects.OUT_STREAM}")
                if status is not None:
                    raise UnavailableError(f"the broker answers {status}")
                yield message

    @asynccontextmanager
    async def _answers(self) -> AsyncIterator[tuple[str, asyncio.Queue[Msg]]]:
        answers: asyncio.Queue[Msg] = asyncio.Queue()
        inbox = new_inbox(self._connection.inbox_prefix)
        subscription = await self._connection.subscribe(inbox, answers.put_nowait)
        try:
            yield inbox, answers
        finally:
            await self._connection.unsubscribe(subscription)
