"""Answers to requests: one inbox, one token per request, one sweeper for all deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from nats.aio.msg import Msg

from grns.errors import GrnsError, OutcomeUnknownError, UnavailableError
from grns.nats.connection import Connection
from grns.nats.signals import OnFact
from grns.nats.subscription import NatsSubscription, new_inbox

Answer = TypeVar("Answer")
# What the answer was, or why there is none.
OnAnswer = Callable[[Answer | GrnsError], None]
# What a body means to whoever asked on a subject; None where it is no answer to that.
Read = Callable[[str, bytes], Answer | GrnsError | None]

_NO_RESPONDERS = "503"


class Replies:
    """Every request that is expected here is answered exactly once: by the broker, by time, or by a loss.

    Whoever listens to the subject of a request may answer it too: what is read as no answer changes nothing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_seconds: float,
        on_fact: OnFact,
        on_error: Callable[[str, GrnsError], None] = lambda _subject, _error: None,
    ) -> None:
        """`on_error` hears of each answer that is an error, with the subject of its request."""
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
        """Listen to the inbox."""
        self._subscription = await self._connection.subscribe(
            self._prefix + "*", self._receive_message, self._receive
        )
        self._sweeper = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """Answer what is still open: nobody else will."""
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
        """Expect no answer any more; False where there was one."""
        return self._waiting.pop(reply, None) is not None

    def _receive_message(self, message: Msg) -> None:
        # Only the server says so; a body that is merely empty may be anybody's.
        if not message.data and (message.headers or {}).get("Status") == _NO_RESPONDERS:
            self._nobody_answers(message.subject)
        else:
            self._receive(message.subject, message.data)

    def _nobody_answers(self, reply: str) -> None:
        if (expected := self._waiting.pop(reply, None)) is not None:
            silence = "nobody answers there: the stream is missing, or nats-server runs without JetStream"
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
        """Answer all requests to the subject that the server has just forbidden."""
        refused = [
            (reply, on_answer)
            for reply, (_, subject, on_answer, _) in self._waiting.items()
            if f'"{subject.lower()}"' in violation
        ]
        for reply, on_answer in refused:
            if self.forget(reply):
                self._answer(
                    on_answer, UnavailableError(f"the broker does not let this user do that: {violation}")
                )

    def _answer(self, on_answer: OnAnswer[Answer], answer: Answer | GrnsError) -> None:
        try:
            on_answer(answer)
        except Exception as error:  # one bad callback must not cost the others their answers
            with contextlib.suppress(Exception):
                self._fact("callback_failed", {"error": f"{type(error).__name__}: {error}"})
