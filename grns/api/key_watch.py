"""Ends what stays open for a key, an event stream or a waiting claim, soon after the key has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from grns.access.keys import good_keys
from grns.access.principals import Principal
from grns.postgres.database import Database
from grns.telemetry.service_signals import TickFailed
from grns.telemetry.signal import Emit

LOOK_SECONDS = 2.0


class KeyWatch:
    """One for a process: one statement every two seconds, for all keys with something open."""

    def __init__(self, database: Database, *, emit: Emit) -> None:
        self._database = database
        self._emit = emit
        self._open: dict[str, list[Callable[[], object]]] = {}
        self._running: asyncio.Task[None] | None = None

    @contextmanager
    def over(self, principal: Principal, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` once the key is revoked or has expired; without a key, never."""
        key_id = principal.key_id
        if key_id is None:
            yield
            return
        ends = self._open.setdefault(key_id, [])
        ends.append(end)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        try:
            yield
        finally:
            ends.remove(end)
            if not ends:
                del self._open[key_id]
            if not self._open and self._running is not None:
                self._running.cancel()
                self._running = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            asked = list(self._open)
            try:
                good = await good_keys(self._database, asked)
            except Exception as error:  # a bug here must not keep the streams of revoked keys open
                self._emit(TickFailed("api_key_watch", str(error)))
                continue
            for key_id in asked:
                if key_id not in good:
                    for end in self._open.get(key_id, ()):
                        end()
