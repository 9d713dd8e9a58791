"""Hints to the follower and the admitter, while one of them says that tasks wait."""

from __future__ import annotations

import asyncio
import time

from grns.model import subjects
from grns.nats import JetStream

# They ask once a second.
_ASKED_SECONDS = 3.0


class FollowNudges:
    """Sends one hint for all that happens at the same time, if one of them has asked for hints."""

    def __init__(self, transport: JetStream) -> None:
        self._transport = transport
        self._asked_until = 0.0
        self._sending: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Listen to who asks."""
        await self._transport.on_nudge(subjects.ENDS_NUDGE, self._note_asked)

    @property
    def are_wanted(self) -> bool:
        """Whether tasks wait for others, or for room in their limits."""
        return time.monotonic() < self._asked_until

    def note(self) -> None:
        """Note that the end of a task, or a task that waits, has been committed."""
        if self._sending is None and self.are_wanted:
            self._sending = asyncio.create_task(self._send())

    def _note_asked(self) -> None:
        self._asked_until = time.monotonic() + _ASKED_SECONDS

    async def _send(self) -> None:
        self._sending = None
        await self._transport.nudge(subjects.FOLLOW_NUDGE)
