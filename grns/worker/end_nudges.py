"""Hints to the follower that tasks have ended, while it says that tasks wait for others."""

from __future__ import annotations

import asyncio
import time

from grns.model import subjects
from grns.nats import JetStream

# The follower asks once a second.
_ASKED_SECONDS = 3.0


class EndNudges:
    """Sends one hint for all tasks that end at the same time; none while the follower has not asked."""

    def __init__(self, transport: JetStream) -> None:
        self._transport = transport
        self._asked_until = 0.0
        self._sending: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Listen to the follower."""
        await self._transport.on_nudge(subjects.ENDS_NUDGE, self._note_asked)

    def note_end(self) -> None:
        """Note that the end of a task has been committed."""
        if self._sending is None and time.monotonic() < self._asked_until:
            self._sending = asyncio.create_task(self._send())

    def _note_asked(self) -> None:
        self._asked_until = time.monotonic() + _ASKED_SECONDS

    async def _send(self) -> None:
        self._sending = None
        await self._transport.nudge(subjects.FOLLOW_NUDGE)
