"""Findings of the doctor: the installation is examined now and then, however often clients ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from grns.diagnose.doctor.snapshot import Snapshot

_FRESH_SECONDS = 5.0


class DoctorCache:
    """Examines the installation now and then, however often clients ask."""

    def __init__(self, examine: Callable[[], Awaitable[Snapshot]]) -> None:
        self._examine = examine
        self._examining = asyncio.Lock()
        self._last: Snapshot | None = None
        self._seen_at = 0.0

    async def latest(self) -> Snapshot:
        """Return what was read within the last seconds."""
        async with self._examining:
            if self._last is None or time.monotonic() - self._seen_at >= _FRESH_SECONDS:
                self._last = await self._examine()
                self._seen_at = time.monotonic()
            return self._last
